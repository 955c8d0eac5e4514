"""What goes wrong in a way the user can mend: one clear sentence, no traceback on the command line."""


class IFCAError(Exception):
    """Base of every error this library raises on purpose."""

    code = 2  # of the command that ends with it


class InvalidInput(IFCAError, ValueError):
    """An argument, a config key or a data file is not what it must be; the message names it."""


class Unreadable(InvalidInput):
    """A file is not what it must be: missing, cut off, altered, of another kind; the message names it."""


class NotFitted(InvalidInput, AttributeError):
    """What only fit gives is not there yet; hasattr says so too."""


class Diverged(IFCAError):
    """A loss or a model became NaN or infinite."""

    code = 1
    bytes_down = bytes_up = 0  # of the round that was given up, over all its participants


class RunFolderWarning(UserWarning):
    """Something about a run's folder: damage that was mended, or what its age does not allow to check."""


class StepHalvedWarning(UserWarning):
    """Training diverged, and went on with a smaller step."""


class FewerClustersWarning(UserWarning):
    """Fewer clusters than k have clients."""


class TooFewClients(IFCAError):
    """A round had fewer usable replies than min_clients, however often it was repeated."""


class Interrupted(IFCAError):
    """The user's ctrl-C, after everything was ended; how to go on."""

    code = 130


class RankLost(IFCAError):
    """One of the processes that train together is gone."""

    code = 1


LONGEST = 400  # letters of a word


def one_line(message: str) -> str:
    """As a terminal can show it: one line, letters that it shows and does not obey, no endless word."""
    words = [word if len(word) <= LONGEST else f"{word[:LONGEST]}..." for word in message.split()]
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in " ".join(words))
