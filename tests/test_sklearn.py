"""IFCA among scikit-learn's tools: rows with groups, DataFrames, cross-validation, searches, notebooks."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sklearn
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.model_selection import GridSearchCV, GroupKFold, StratifiedKFold, cross_val_score

from ifca import IFCA, Federation, InvalidInput, open_run
from ifca.report.notebook import progress, shown_page
from tests.browser import browsing, needs_browser
from tests.conftest import groups as federation_of_groups

pytestmark = pytest.mark.filterwarnings("ignore::ifca.training.poor_fit.PoorFitWarning")  # a few rounds
FOLDS = StratifiedKFold(3, shuffle=True, random_state=0)


def hospitals(m: int = 8, n: int = 60) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of m hospitals that follow one of two laws, in no order: x in odd units, y, whose."""
    rng = np.random.default_rng(0)
    w, x = rng.normal(size=4), rng.normal(size=(m * n, 4))
    owner = rng.permutation(np.repeat(np.arange(m), n))
    y = (x @ w * np.where(owner % 2, 1, -1) > 0).astype(int)
    return 50 + 10 * x, y, np.array([f"hospital {i}" for i in owner])


X, Y, WHOSE = hospitals()


@pytest.fixture(scope="module")
def fitted() -> IFCA:
    return IFCA(2, rounds=15).fit(X, Y, groups=WHOSE)


def test_rows_with_groups(fitted: IFCA) -> None:
    assert set(fitted.clients_) == set(WHOSE)
    odd = [int(name.split()[1]) % 2 for name in fitted.clients_]
    assert len({*zip(odd, fitted.labels_.tolist(), strict=True)}) == 2  # the two laws are the two clusters
    said = fitted.predict(X, groups=WHOSE)
    assert (said == Y).mean() == pytest.approx(fitted.score(X, Y, groups=WHOSE))
    assert (said == Y).mean() > 0.95
    assert (fitted.predict_proba(X, groups=WHOSE).argmax(1) == said).all()
    one = fitted.clients_[3] == WHOSE
    assert fitted.predict(X[one], fitted.labels_[3]).tolist() == said[one].tolist()
    assert (IFCA(2, rounds=15).fit_predict(X, Y, WHOSE) == said).all()
    assert fitted.classes_.tolist() == [0, 1]
    assert fitted.n_features_in_ == 4
    assert is_classifier(fitted)
    assert not is_classifier(IFCA())


def test_lists_of_arrays_and_frames_give_the_same(fitted: IFCA) -> None:
    pandas = pytest.importorskip("pandas")
    names = list(fitted.clients_)
    lists = [X[name == WHOSE] for name in names], [Y[name == WHOSE] for name in names]
    assert IFCA(2, rounds=15).fit(*lists, groups=names).train_loss_ == fitted.train_loss_
    frame = pandas.DataFrame(X, columns=list("abcd")).assign(hospital=WHOSE, outcome=Y)
    for given in ((frame, "outcome", "hospital"), (frame[list("abcd")], frame["outcome"], frame["hospital"])):
        front = IFCA(2, rounds=15).fit(*given)
        assert front.train_loss_ == fitted.train_loss_
        assert front.feature_names_in_.tolist() == list("abcd")
        assert (front.predict(frame[list("dcba")], groups=WHOSE) == fitted.predict(X, groups=WHOSE)).all()
    column = np.column_stack([X, [names.index(name) for name in WHOSE]])
    by_number = IFCA(2, rounds=15, client=4).fit(column, Y)
    assert (by_number.predict(column) == by_number.predict(X, groups=column[:, 4])).all()


def test_a_client_never_seen_chooses_by_one_half_of_its_rows(fitted: IFCA) -> None:
    new = np.where(WHOSE == "hospital 0", "new", WHOSE)[WHOSE == "hospital 0"]
    here = WHOSE == "hospital 0"
    assert fitted.score(X[here], Y[here], groups=new) > 0.9
    with pytest.raises(InvalidInput, match="client new was not in training, and rows without labels"):
        fitted.predict(X[here], groups=new)
    with pytest.raises(InvalidInput, match="need two samples"):
        fitted.score(X[here][:1], Y[here][:1], groups=new[:1])
    alone = IFCA(algorithm="global", rounds=2).fit(X, Y, WHOSE)  # one model serves everybody
    assert (alone.predict(X[here], groups=new) == alone.predict(X[here])).all()


def test_what_was_loaded_knows_its_clients(fitted: IFCA, tmp_path: Path) -> None:
    again = open_run(fitted.save(tmp_path / "run"))
    assert again.clients_ == fitted.clients_
    assert (again.predict(X, groups=WHOSE) == fitted.predict(X, groups=WHOSE)).all()
    assert again.classes_.tolist() == [0, 1]


def test_regression_of_rows() -> None:
    front = IFCA(1, algorithm="global", rounds=40).fit(X, (X - 50) @ np.arange(4.0) / 10, WHOSE)
    assert is_regressor(front)
    assert front.score(X, (X - 50) @ np.arange(4.0) / 10, WHOSE) > 0.99


def test_cross_validation_with_routed_groups() -> None:
    """Held-out rows of the same clients, and held-out clients."""
    with sklearn.config_context(enable_metadata_routing=True):
        front = IFCA(2, rounds=12).set_fit_request(groups=True).set_score_request(groups=True)
        for folds in (FOLDS, GroupKFold(3)):
            assert cross_val_score(front, X, Y, params={"groups": WHOSE}, cv=folds).min() > 0.85
        search = GridSearchCV(front, {"k": [1, 2]}, cv=FOLDS).fit(X, Y, groups=WHOSE)
        assert search.best_params_ == {"k": 2}
        assert search.score(X, Y, groups=WHOSE) > 0.9


def test_cross_validation_with_a_column_of_clients() -> None:
    """X says whose a row is, so that every scorer of scikit-learn can be used."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcd")).assign(hospital=WHOSE)
    front = IFCA(2, rounds=12, client="hospital")
    for scoring in (None, "accuracy", "roc_auc"):
        assert cross_val_score(front, frame, Y, cv=FOLDS, scoring=scoring).min() > 0.85
    assert cross_val_score(front, frame, Y, groups=WHOSE, cv=GroupKFold(3)).min() > 0.85
    search = GridSearchCV(front, {"k": [1, 2]}, cv=FOLDS, scoring="roc_auc").fit(frame, Y)
    assert search.best_params_ == {"k": 2}
    assert clone(front).get_params() == front.get_params()


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ((X, Y), "fit: groups is missing; say whose each row is"),
        ((X, None, WHOSE), "fit: y is missing"),
        ((X, Y, WHOSE[:3]), "groups must have one entry for each of 480 rows"),
        ((X, Y[:3], WHOSE), "X has 480 rows but y has 3"),
        ((X, Y, "hospital"), "groups names the column 'hospital', which X does not have"),
        ((X, Y, [None, *WHOSE[1:]]), "groups does not say whose row 0 is"),
        (([X, X], [Y]), "X has an array for each of 2 clients, y has 1"),
        (([X, X[:5]], [Y, Y]), "client 1: X has 5 rows but y has 480"),
        ((federation_of_groups((9, 9)), Y), "a Federation has its labels and clients; give it alone"),
    ],
)
def test_wrong_rows_are_one_sentence(given: tuple[Any, ...], complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        IFCA(2).fit(*given)


def test_wrong_columns_are_one_sentence(fitted: IFCA) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcd"))
    named = IFCA(algorithm="global", rounds=1).fit(frame, Y, WHOSE)
    with pytest.raises(InvalidInput, match="predict: X has no column b, which was there in training"):
        named.predict(frame[["a"]], groups=WHOSE)
    with pytest.raises(InvalidInput, match=r"say whose each row is \(groups=\), or which model to use"):
        fitted.predict(X)
    with pytest.raises(InvalidInput, match="give groups or cluster, not both"):
        fitted.predict(X, 0, groups=WHOSE)


def test_a_list_of_images_is_a_list_of_rows() -> None:
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (4, 4), dtype=np.uint8) for _ in range(20)]
    front = IFCA(1, algorithm="global", rounds=1).fit(images, [i % 2 for i in range(20)], ["a", "b"] * 10)
    assert front.predict(images, groups=["a", "b"] * 10).shape == (20,)


def test_a_callback_may_leave_methods_out() -> None:
    told: list[dict[str, Any]] = []
    IFCA(
        algorithm="global",
        rounds=2,
        callbacks=[SimpleNamespace(round_ended=told.append)],
    ).fit(federation_of_groups((9, 9)))
    assert [record["round"] for record in told] == [0, 1]


def test_every_argument_is_explained_or_a_key_of_the_config() -> None:
    said = inspect.getdoc(IFCA) or ""
    for name in ("k", "model", "step_size", "rounds", "client", "verbose", "participation"):
        assert f"\n    {name}: " in said
    assert inspect.signature(IFCA.fit).parameters.keys() == {"self", "X", "y", "groups"}


class TestNotebook:
    """What Jupyter asks for; IPython itself is not needed here."""

    def test_a_fitted_model_shows_its_page(self, fitted: IFCA, tmp_path: Path) -> None:
        shown = fitted._repr_mimebundle_()
        assert shown["text/plain"].startswith("IFCA(k=2")
        assert shown["text/html"].startswith('<iframe sandbox="allow-scripts allow-downloads"')
        assert "&lt;!doctype html&gt;" in shown["text/html"]
        assert shown["text/html"].count("<") == 2  # the page is inside an attribute, nothing leaks out of it
        folder = fitted.save(tmp_path / "run")
        assert open_run(folder)._repr_html_().startswith("<iframe")
        card = shown_page(folder, largest=10)
        assert "8 clients, 15 rounds" in card
        assert "cluster 1, 4 clients: hospital" in card

    @needs_browser
    def test_links_stay_in_the_frame(self, fitted: IFCA, tmp_path: Path) -> None:
        """Without a base of its own, a link to a section would load the notebook into the frame."""
        frame = fitted._repr_html_().replace("allow-downloads", "allow-same-origin")  # so that we can look
        (tmp_path / "cell.html").write_text(f'<!doctype html><meta charset="utf-8">{frame}')
        link = """frames[0].document.querySelector('a[href="#learning"]')"""
        with browsing(tmp_path) as browser:
            browser.open((tmp_path / "cell.html").as_uri())
            browser.wait(link)
            browser.evaluate(f"{link}.click()")
            browser.wait("frames[0].location.href === 'about:srcdoc#learning'")

    def test_one_that_is_not_fitted_shows_its_arguments(self) -> None:
        assert "sk-" in IFCA(3)._repr_html_()

    def test_progress_in_a_notebook(self, monkeypatch: pytest.MonkeyPatch) -> None:
        shown: list[str] = []

        def display(html: str, display_id: bool) -> SimpleNamespace:
            shown.append(html)
            return SimpleNamespace(update=shown.append)

        notebook = ModuleType("IPython")
        notebook.display = ModuleType("IPython.display")  # type: ignore[attr-defined]
        notebook.display.display, notebook.display.HTML = display, str
        notebook.get_ipython = lambda: SimpleNamespace(kernel=1)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "IPython", notebook)
        monkeypatch.setitem(sys.modules, "IPython.display", notebook.display)
        IFCA(algorithm="global", rounds=3, verbose=True).fit(federation_of_groups((9, 9)))
        assert len(shown) == 4
        assert shown[0].startswith('<div><progress value="0" max="3">')
        assert "global: round 2 of 3, about" in shown[2]
        assert "global: round 3 of 3; loss" in shown[3]

    def test_progress_elsewhere(self, capsys: pytest.CaptureFixture[str]) -> None:
        IFCA(algorithm="global", rounds=3, verbose=True).fit(federation_of_groups((9, 9)))
        assert "global: round 3/3, loss" in capsys.readouterr().err
        with progress(False) as nobody:
            assert nobody == []


def test_a_federation_still_works_alone() -> None:
    rows = (
        [X[name == WHOSE] for name in sorted(set(WHOSE))],
        [Y[name == WHOSE] for name in sorted(set(WHOSE))],
    )
    front = IFCA(algorithm="global", rounds=1).fit(Federation.from_arrays(*rows))
    assert front.clients_ == tuple(map(str, range(8)))
    with pytest.raises(InvalidInput, match="fit_predict takes X, y and groups"):
        front.fit_predict(Federation.from_arrays(*rows))
