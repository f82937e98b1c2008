# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Dialects, passes and code generation: what is written in C++, and links MLIR.

Use it as `rlx_mlir.ir.native`: MLIR's bindings have to be imported first, and that module does so.
"""

import enum
from collections.abc import Callable, Sequence

from rlx_mlir.ir import Attribute, Context, DialectRegistry, Location, Operation

def register_dialects(registry: DialectRegistry) -> None:
    """Adds HIR and MIR to a `mlir.ir.DialectRegistry`."""

def register_format(
    name: str,
    length: int,
    bytes: int,
    panel_bytes: int,
    integers: bool,
    planes: Sequence[tuple[int, int]] = (),
) -> None:
    """Makes a block format of packed weights known to all contexts, for ever.

    Args:
        name: a word of letters, digits and `_`.
        length, bytes: elements of a block of one row, and the bytes that it takes.
        panel_bytes: bytes that it takes in a panel; 0 where the format has no panels.
        integers: whether products of integers can read it.
        planes: parts of a row in layout planes, as elements and the bytes that they take; empty where there are none.

    Raises ValueError where another format has the name, or a number is out of range.
    """

class PackedAttr(Attribute):
    """`#mir.packed`, the encoding of a packed weight's type: MLIR's bindings give it as this class.

    `PackedAttr(attribute)` is a cast; ValueError where the attribute is another one.
    """

    def __new__(cls, cast_from_attr: Attribute) -> PackedAttr: ...
    @staticmethod
    def isinstance(other_attribute: Attribute) -> bool:
        """Whether an attribute is `#mir.packed`."""

    @staticmethod
    def get(
        scheme: str, k: int, n: int | None = None, layout: str = "rows", context: Context | None = None
    ) -> PackedAttr:
        """The attribute of these parameters; ValueError with the verifier's text where there is none."""

    @property
    def scheme(self) -> str:
        """Name of the block format."""

    @property
    def k(self) -> int:
        """Columns (inputs) of the weight."""

    @property
    def n(self) -> int | None:
        """Rows (outputs), where the layout is `panels`; else None: the type has them."""

    @property
    def layout(self) -> str:
        """`rows`, `panels` or `planes`."""

def register_native_passes() -> None:
    """Registers the passes written in C++. Once for each process: a second time aborts it."""

def register_pass(
    argument: str,
    description: str,
    anchor: str,
    options: Sequence[tuple[str, str]],
    dependent_dialects: Sequence[str],
    run: Callable[[Operation, list[tuple[str, str]]], str],
) -> None:
    """Registers a pass in MLIR's registry; it lives as long as the process.

    Args:
        argument: name in pipelines, not registered yet.
        description: one line for `--help`.
        anchor: operation that the pass runs on; empty where it runs on any.
        options: (name, description) of each.
        dependent_dialects: names of dialects to load before the pass manager starts its threads.
        run: gets the operation, and (name, text) of the options that were given; returns the text of an error, or ''.
            It is called with the interpreter lock held, on a thread of the pass manager.
    """

def register_pipeline(name: str, description: str, text: str, options: Sequence[tuple[str, str]] = ()) -> None:
    """Registers a name for a textual pipeline.

    Args:
        options: (name, default) of each; values take the place of `$name` in the text.
    """

class Watch:
    """Asked by native code whether to go on: a compilation that ends early, and where its time went."""

    def __init__(self, seconds: float = 0.0) -> None:
        """Its time is up so many seconds from now; never where they are 0."""

    def stop(self) -> None:
        """Ends the compilation; from any thread."""

    @property
    def is_over(self) -> bool:
        """Whether the compilation is to end."""

    @property
    def is_late(self) -> bool:
        """Whether it ends because its time was up."""

    @property
    def place(self) -> tuple[str, str]:
        """(pass, function) that ran when its time was up; both are empty where it isn't or nothing did."""

    @property
    def work(self) -> list[tuple[tuple[str, str], float]]:
        """((pass, function), seconds) that were spent there, by all threads together."""

def is_over() -> bool:
    """Whether the compilation that this thread works for is to end."""

class Diagnostic:
    """A diagnostic that a pipeline emitted."""

    @property
    def severity(self) -> str:
        """`error`, `warning`, `remark` or `note`."""

    @property
    def location(self) -> str:
        """Where, as MLIR prints locations."""

    @property
    def message(self) -> str:
        """What."""

class PipelineResult:
    """What a run of a pipeline left."""

    @property
    def succeeded(self) -> bool:
        """Whether every pass did."""

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """Every diagnostic, each note after the one that it belongs to."""

    @property
    def log(self) -> str:
        """What printing and timing wrote."""

    @property
    def reproducer(self) -> str:
        """Where it failed, the IR that it was given below the command that fails; else empty."""

def emit_remark(location: Location, message: str) -> None:
    """Reports a remark at a location, as passes do."""

def run_pipeline(
    op: Operation,
    pipeline: str,
    *,
    verify: bool = True,
    print_changed: bool = False,
    timing: bool = False,
    watch: Watch | None = None,
) -> PipelineResult:
    """Runs a textual pipeline on an operation, without the interpreter lock.

    Once the watch is over, no pass and no pattern is started, and the pipeline doesn't succeed. Use
    `rlx_mlir.rewriting.run_pipeline`, which registers the passes first and raises what went wrong.
    """

def opt_main(arguments: Sequence[str], check: Callable[[bytes], str]) -> int:
    """Runs rlx-opt; the first argument is the program's name. Returns the exit status.

    `check` says what is wrong with a source, before it is parsed; it returns "" where nothing is.
    """

def lsp_main(arguments: Sequence[str]) -> int:
    """Runs the language server on standard input and output; arguments and result as for `opt_main`."""

def reduce_main(arguments: Sequence[str]) -> int:
    """Runs rlx-reduce; arguments and result as for `opt_main`."""

def print_stack_traces() -> None:
    """From here on, a signal that ends the process prints a stack trace first."""

def identity(op: Operation) -> int:
    """A number that is this operation's alone while it lives; its hash follows from what it holds, and changes."""

def is_equivalent(lhs: Operation, rhs: Operation) -> bool:
    """Whether two operations of one context are the same but for their locations."""

def host_target() -> tuple[str, str, str]:
    """(target triple, CPU name, feature string such as "+avx2,-sse4a") of this machine, as LLVM names them."""

def target_features(triple: str, cpu: str) -> str:
    """Every feature of an architecture, "+name" where the CPU has it and "-name" where not, separated by commas.

    An empty CPU is the least one of the architecture. Raises ValueError for a triple or CPU that LLVM lacks.
    """

def measure_text(text: bytes) -> tuple[int, int, bool, bool]:
    """How deep brackets and terms of affine expressions are nested in a text, the digits of its longest number, whether
    a constant has more elements than 64 bits count, and whether a value may be used before it is defined."""

def foreign_string(root: Operation) -> str:
    """Names the first string of IR that isn't UTF-8, and its operation; "" where there is none."""

def tuning_features(triple: str) -> list[str]:
    """Names of those features of an architecture that say what is fast on a CPU, not what it has.

    Raises ValueError for a triple that LLVM lacks.
    """

class CodeKind(enum.Enum):
    """What `emit_code` makes."""

    OBJECT = ...
    ASSEMBLY = ...
    LLVM = ...

def emit_code(
    module: Operation,
    triple: str,
    cpu: str,
    features: str,
    level: int,
    kind: CodeKind,
    watch: Watch | None = None,
) -> bytes:
    """Optimises a module of the LLVM dialect at level 0 to 3, and gives its code, without the interpreter lock.

    Raises ValueError where the module holds another dialect too, LLVM doesn't know the target, or the watch is over
    before the code is there; in a pass of a pipeline, the pipeline's watch is asked where none is given.
    """
