# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The commands `rlx fuzz`: look for inputs that the compiler handles wrongly, and replay them."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlx_mlir.tools.options import Commands, LoadOption, OptionError, own_passes

if TYPE_CHECKING:
    from rlx_mlir.checks import Option

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Look for inputs that are handled wrongly: graphs, model files, chat templates, IR as text and as bytes.",
)

SeedOption = Annotated[int, typer.Option(min=0, help="The cases of a seed are always the same.")]
CountOption = Annotated[int, typer.Option(min=0, help="Cases to run; 0 for as many as there is time for.")]
MinutesOption = Annotated[float, typer.Option(min=0.0, help="Begin no case after so many minutes; 0 for no limit.")]
JobsOption = Annotated[int, typer.Option("-j", "--jobs", min=1, help="Cases to run at one time.")]
FirstOption = Annotated[int, typer.Option(min=0, help="Number of the first case.")]
OutOption = Annotated[Path, typer.Option("--out", help="Folder for what is found.")]
CorpusOption = Annotated[
    list[Path] | None, typer.Option(help="Folders of .mlir files to start from, beside the documented examples.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

_COUNT = 100
_OUT = Path("fuzz-findings")


def _run(
    fuzzer: str,
    seed: int,
    count: int,
    minutes: float,
    jobs: int,
    first: int,
    out: Path,
    as_json: bool,
    **settings: Option,
) -> None:
    """Runs a fuzzer and reports; exits with 1 where it found something, else 130 where it was interrupted."""
    from rlx_mlir.fuzz import campaign

    plan = campaign.Plan(fuzzer, seed, count or (0 if minutes else _COUNT), minutes, jobs, out, first, settings)
    report = campaign.run(plan, lambda line: typer.echo(line, err=True))
    if as_json:
        typer.echo(json.dumps(report.to_dict(), indent=2))
    else:
        counts = ", ".join(f"{number} {status}" for status, number in report.statuses.most_common())
        typer.echo(f"{report.cases} cases of seed {seed} in {report.seconds:.0f} s: {counts or 'none'}")
        for found in report.findings:
            first_line = found.message.partition("\n")[0]
            typer.echo(f"{found.kind} ({found.owner}), {found.count} cases: {first_line}\n  {found.command}")
    if report.findings or report.interrupted:
        raise typer.Exit(1 if report.findings else 130)


@app.command()
def graphs(
    seed: SeedOption = 0,
    count: CountOption = 0,
    minutes: MinutesOption = 0.0,
    jobs: JobsOption = 1,
    first: FirstOption = 0,
    out: OutOption = _OUT,
    op: Annotated[list[str] | None, typer.Option(help="Draw only these operations; may be repeated.")] = None,
    load: LoadOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compile random graphs, and compare their results with those of the interpreter."""
    from rlx_mlir.errors import InputError

    if op:
        from rlx_mlir.fuzz.operations import GENERATORS

        if unknown := [name for name in op if name not in GENERATORS]:
            raise InputError(f"no operation is named {', '.join(unknown)}; known are {', '.join(sorted(GENERATORS))}")
    settings = {"ops": op} if op else {}
    if load:
        own_passes(None, load)  # before any case, where one can't be loaded
        settings["load"] = [str(path.absolute()) for path in load]
    _run("graphs", seed, count, minutes, jobs, first, out, as_json, **settings)


@app.command()
def gguf(
    file: Annotated[
        Path | None, typer.Argument(help="The file to start from; a small one is made by default.", show_default=False)
    ] = None,
    seed: SeedOption = 0,
    count: CountOption = 0,
    minutes: MinutesOption = 0.0,
    jobs: JobsOption = 1,
    first: FirstOption = 0,
    out: OutOption = _OUT,
    as_json: JsonOption = False,
) -> None:
    """Read model files that are damaged or lie: all that may come of it is an error of ours."""
    from rlx_mlir.errors import InputError

    if file is not None and not file.is_file():
        raise InputError(f"{file} isn't a file")
    settings = {"source": str(file.absolute())} if file is not None else {}
    _run("gguf", seed, count, minutes, jobs, first, out, as_json, **settings)


#: Fuzzers whose commands take what every fuzzer takes and no more, and what the commands do.
_PLAIN = {
    "derivatives": "Differentiate and batch random graphs: modes agree with each other and with small steps, "
    "batches with calls.",
    "scaling": "Compile modules of growing size: twice as much of anything may cost two and a half times the time.",
    "templates": "Render random chat templates: all that may come of it is a text or an error of ours, soon.",
    "folders": "Read encoders' folders that are damaged or lie: all that may come of it is an error of ours.",
}
#: Those that start from .mlir files, too.
_OF_MODULES = {
    "text": "Parse mutated IR text and run random passes: diagnostics are fine, crashes are not.",
    "bytecode": "Read damaged bytecode, and text nested or long beyond reason: all that may come of it is an error of "
    "ours.",
}


def _plain(fuzzer: str) -> Callable[..., None]:
    """The command of a fuzzer of `_PLAIN`."""

    def command(
        seed: SeedOption = 0,
        count: CountOption = 0,
        minutes: MinutesOption = 0.0,
        jobs: JobsOption = 1,
        first: FirstOption = 0,
        out: OutOption = _OUT,
        as_json: JsonOption = False,
    ) -> None:
        _run(fuzzer, seed, count, minutes, jobs, first, out, as_json)

    return command


def _of_modules(fuzzer: str) -> Callable[..., None]:
    """The command of a fuzzer of `_OF_MODULES`."""

    def command(
        seed: SeedOption = 0,
        count: CountOption = 0,
        minutes: MinutesOption = 0.0,
        jobs: JobsOption = 1,
        first: FirstOption = 0,
        out: OutOption = _OUT,
        corpus: CorpusOption = None,
        as_json: JsonOption = False,
    ) -> None:
        _run(fuzzer, seed, count, minutes, jobs, first, out, as_json, **_corpus(corpus))

    return command


def _corpus(folders: list[Path] | None) -> dict[str, object]:
    """The settings for folders of .mlir files; InputError where one isn't there, or has none."""
    from rlx_mlir.errors import InputError

    for folder in folders or ():
        if not folder.is_dir():
            raise InputError(f"{folder} isn't a folder")
        if next(folder.rglob("*.mlir"), None) is None:
            raise InputError(f"the corpus {folder} has no file *.mlir")
    return {"corpus": [str(folder.absolute()) for folder in folders]} if folders else {}


for _name, _help in _PLAIN.items():
    app.command(_name, help=_help)(_plain(_name))
for _name, _help in _OF_MODULES.items():
    app.command(_name, help=_help)(_of_modules(_name))


@app.command()
def replay(
    file: Annotated[Path, typer.Argument(help="What a fuzzer kept.")],
    as_json: JsonOption = False,
) -> None:
    """Run a case again, in a child process; exits with 1 where it shows something wrong."""
    from rlx_mlir.fuzz import campaign

    outcome = campaign.replay(file)
    if as_json:
        typer.echo(json.dumps(outcome, indent=2))
    else:
        typer.echo(f"{outcome['status']}: {outcome.get('kind', '')} {outcome.get('message', '')}".rstrip(": "))
        if outcome.get("details"):
            typer.echo(outcome["details"], err=True)
    if outcome["status"] == "finding":
        raise typer.Exit(1)


class Failure(str, enum.Enum):
    """What `rlx interesting` looks for."""

    crash = "crash"
    text = "text"
    mismatch = "mismatch"


def interesting(
    what: Annotated[
        Failure,
        typer.Argument(
            help="crash: rlx-opt dies or hangs; text: it writes something; "
            "mismatch: compiled and interpreted results differ."
        ),
    ],
    file: Annotated[Path, typer.Argument(help="The module; rlx-reduce adds it.")],
    match: Annotated[str, typer.Option("--match", help="Regular expression that the output matches.")] = "",
    opt: Annotated[list[str] | None, typer.Option("--opt", help="Argument of rlx-opt; may be repeated.")] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="After which rlx-opt counts as hanging.")] = 60.0,
) -> None:
    """Tell rlx-reduce whether a module still shows a failure: exits with 1 where it does, 0 where it doesn't."""
    from rlx_mlir.tools.interesting import is_interesting

    if what is Failure.text and not match:
        raise OptionError("'text' needs --match, the expression to look for")
    found = is_interesting(file, what.value, text=match, arguments=tuple(opt or ()), seconds=seconds)
    raise typer.Exit(1 if found else 0)
