"""Pages from the code itself: every config key from its docstring, every command from its help."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import typer

from ifca.cli.main import app
from ifca.core import recipe
from ifca.engines import precision

SOURCE = Path(__file__).parent.parent / "src" / "ifca"
TABLES = (  # heading, what it is, file, classes (a parent's keys first)
    ("The algorithm", "At the top of the file.", "core/recipe.py", ("Recipe",)),
    ("Single methods", "At the top of the file.", "core/method_settings.py", ("MethodSettings",)),
    ("Differential privacy", "At the top of the file.", "core/privacy_settings.py", ("PrivacySettings",)),
    ("The run", "At the top of the file.", "runs/config.py", ("Config",)),
    ("[model]", "", "runs/config.py", ("ModelConfig",)),
    ('[data] name = "rotated-digits"', "", "runs/data_config.py", ("DigitsData",)),
    ('[data] name = "synthetic"', "", "runs/data_config.py", ("SyntheticData",)),
    ('[data] name = "folder"', "", "runs/own_data_config.py", ("OwnFiles", "FolderData")),
    ('[data] name = "table"', "", "runs/own_data_config.py", ("OwnFiles", "FolderData", "TableData")),
    ('[data] name = "function"', "", "runs/own_data_config.py", ("FunctionData",)),
    ('[data] name = "python"', "", "runs/own_data_config.py", ("GivenData",)),
    ('[data] name = "leaf"', "", "runs/own_data_config.py", ("OwnFiles", "LeafData")),
    ('[data] name = "hugging-face"', "", "runs/own_data_config.py", ("OwnFiles", "HuggingFaceData")),
    ('[data] name = "rotated-mnist"', "", "runs/data_config.py", ("RotatedData", "RotatedMnistData")),
    ('[data] name = "rotated-cifar"', "", "runs/data_config.py", ("RotatedData", "RotatedCifarData")),
    ('[data] name = "femnist"', "", "runs/data_config.py", ("FemnistData",)),
    ('[data] name = "mnist-writers"', "", "runs/data_config.py", ("WritersData",)),
    ('[data] name = "partition"', "", "runs/data_config.py", ("PartitionData",)),
    ("[data.deal]", "", "data/dealing.py", ("Deal",)),
    ("[[data.populations]]", "", "data/population.py", ("Population",)),
    ("[federation]", "", "runs/federation_config.py", ("FederationConfig",)),
    ("[attack]", "", "runs/attack_config.py", ("AttackConfig",)),
)

ELSEWHERE = ("name", "data", "model", "federation", "attack")  # in headings, or tables of their own


@dataclass(frozen=True)
class Key:
    """A field of a config class as its source says it."""

    name: str
    kind: str
    default: str
    text: str


def keys_of(file: str, name: str) -> tuple[str, list[Key]]:
    """The docstring of a class, and its fields with theirs; a field without one has an empty text."""
    tree = ast.parse((SOURCE / file).read_text())
    found = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    keys = []
    for place, node in enumerate(found.body):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            if node.target.id.startswith("_"):
                continue
            after = found.body[place + 1] if place + 1 < len(found.body) else None
            value = after.value if isinstance(after, ast.Expr) else None
            text = str(value.value) if isinstance(value, ast.Constant) else ""
            default = "–" if node.value is None else _toml(node.value)
            keys.append(Key(node.target.id, _kind(node.annotation), default, " ".join(text.split())))
    return ast.get_docstring(found) or "", keys


def config_page() -> str:
    """Every key of a config file."""
    parts = [
        "# Every config key",
        "Made from the docstrings in the code; `–` as default: the key must be given.",
    ]
    for heading, text, file, classes in TABLES:
        read = [keys_of(file, name) for name in classes]
        about = " ".join(" ".join([read[-1][0], text]).split())
        parts += [f"## `{heading}`" if heading.startswith("[") else f"## {heading}", about]
        named = heading in ("[model]", "[attack]")
        keys = [key for _, some in read for key in some if named or key.name not in ELSEWHERE]
        rows = [_row(key) for key in keys]
        parts.append("\n".join(["| key | type | default | what it is |", "|---|---|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def cli_page() -> str:
    """Every command, its arguments and options."""
    parts = ["# Command line", "Made from the commands themselves; `ifca COMMAND --help` prints the same."]
    parts += list(_commands(typer.main.get_command(app), "ifca"))
    return "\n\n".join(parts) + "\n"


def _commands(group: Any, path: str) -> list[str]:
    parts = []
    for name in group.list_commands(None):
        command, full = group.commands[name], f"{path} {name}"
        if hasattr(command, "commands"):
            parts += _commands(command, full)
            continue
        required = [p for p in command.params if p.param_type_name == "argument"]
        usage = " ".join([full, *[p.name.upper() if p.required else f"[{p.name.upper()}]" for p in required]])
        parts += [f"## {full}", f"```\n{usage}\n```", command.help or ""]
        rows = [_parameter(p) for p in command.params]
        if rows:
            parts.append("\n".join(["| parameter | what it is |", "|---|---|", *rows]))
    return parts


def _parameter(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        name = parameter.name.upper()
    else:
        name = parameter.opts[0] + ("" if parameter.is_flag else f" {parameter.name.upper()}")
    default = parameter.default
    plain = isinstance(default, (str, int, float)) and not isinstance(default, bool)
    shown = f" Default: `{default}`." if plain and default != "" else ""
    return f"| `{name}` | {_cell(parameter.help or '')}{shown} |"


class _Bare(ast.NodeTransformer):
    """Annotated[X, limits] -> X."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if (
            isinstance(node.value, ast.Name)
            and node.value.id == "Annotated"
            and isinstance(node.slice, ast.Tuple)
        ):
            return self.visit(node.slice.elts[0])
        return self.generic_visit(node)


def _kind(node: ast.expr) -> str:
    """A type as a user thinks of it: without the limits that pydantic checks."""
    text = ast.unparse(_Bare().visit(node))
    for name, meaning in {**_choices(), "Positive": "int"}.items():
        text = re.sub(rf"\b{name}\b", meaning, text)
    text = re.sub(r"Literal\[([^\]]*)\]", r"\1", text)
    text = re.sub(r"tuple\[([^\]]*), \.\.\.\]", r"list of \1", text)
    return text.replace(" | None", "").replace(" | ", " or ").replace("dict[str, Any]", "table")


def _choices() -> dict[str, str]:
    """Names for sets of words, spelled out."""
    named = {"Option": recipe.Option, "Precision": precision.Precision}
    return {name: ", ".join(f"'{word}'" for word in get_args(kind)) for name, kind in named.items()}


def _toml(node: ast.expr) -> str:
    """A default as a config would have it."""
    text = ast.unparse(node)
    if text.startswith("Field(default_factory"):
        return "{}"
    plain = {"None": "not set", "True": "true", "False": "false", "()": "[]"}.get(text, text)
    plain = re.sub(r"^\((.*?),?\)$", r"[\1]", plain)
    return plain.replace("'", '"')


def _row(key: Key) -> str:
    return f"| `{key.name}` | {_cell(key.kind)} | `{_cell(key.default)}` | {_cell(key.text)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
