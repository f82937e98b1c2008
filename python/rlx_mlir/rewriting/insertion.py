# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Passes that callers put into the compiler's pipelines, or leave out: where they go, and what their code is."""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rlx_mlir import checks
from rlx_mlir.errors import InputError, did_you_mean
from rlx_mlir.rewriting.pipelines import PIPELINES, members, parts, pass_name, split
from rlx_mlir.rewriting.registry import PASSES, register_all

_PLACE = re.compile(r"(before|after):(?:([\w.-]+)/)?([\w.-]+)")


def checked_passes(passes: Mapping[str, str]) -> dict[str, str]:
    """The pipelines by their places; InputError where one is no text, or a place isn't written as places are."""
    found = checks.mapping("passes", passes, "a mapping from places, such as 'after:rlx-fuse', to pipelines")
    for place, pipeline in found.items():
        if not isinstance(place, str) or not _PLACE.fullmatch(place):
            raise InputError(
                f"'passes' has places 'before:PASS' and 'after:PASS', with PIPELINE/ before a pass that stands in "
                f"several, but got {checks.shown(place)}"
            )
        if not checks.is_text(pipeline) or not pipeline.strip():
            raise InputError(
                f"'passes' expects a pipeline at '{place}', such as 'cse', but got {checks.shown(pipeline)}"
            )
    return dict(found)


def checked_fusions(given: object) -> tuple[str, ...]:
    """The passes of `rlx-fuse` that `skip_fusion` names, in their order; InputError where there is no such pass."""
    register_all()
    known = [step for step, _ in PIPELINES["rlx-fuse"].steps if step.startswith(("mir-fuse-", "mir-raise-"))]
    listed = (known if given else ()) if isinstance(given, bool) else checks.names("skip_fusion", given)
    for name in listed:
        if name not in known:
            raise InputError(
                f"'skip_fusion' expects True or some of {', '.join(known)}, but got {checks.shown(name)}"
                f"{did_you_mean(name, known)}"
            )
    return tuple(name for name in known if name in listed)


@dataclass
class _Step:
    """A pass or a named pipeline of a stage, and what is to run around it."""

    text: str
    members: list[_Step]
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    skipped: bool = False

    @staticmethod
    def of(text: str) -> _Step:
        return _Step(text, [_Step.of(member) for member in members(text)])

    @property
    def name(self) -> str:
        return pass_name(self.text)

    def walk(self, within: str = "") -> Iterator[tuple[str, _Step]]:
        """This step and all inside of it, each with the named pipeline that holds it."""
        yield within, self
        for member in self.members:
            yield from member.walk(self.name)

    def render(self) -> tuple[str, bool]:
        """The pipeline with what was put in, without what is skipped, and whether there was either."""
        inner = [member.render() for member in self.members]
        changed = any(own for _, own in inner)
        text = ",".join(own for own, _ in inner if own) if changed else self.text
        whole = [*self.before, *([text] if text and not self.skipped else []), *self.after]
        return ",".join(whole), changed or self.skipped or bool(self.before or self.after)


def with_passes(
    stages: Sequence[tuple[str, str]], passes: Mapping[str, str], skipped: Collection[str] = ()
) -> list[tuple[str, str]]:
    """The stages' pipelines with a caller's at their places, and without the compiler's that are skipped.

    Args:
        stages: (stage, pipeline) pairs.
        passes: pipelines by places, as `checked_passes` gives them; those beside what is skipped run.
        skipped: names of passes.

    Raises InputError where a place names no step of the pipelines, or several.
    """
    register_all()
    trees = [(stage, [_Step.of(part) for part in parts(pipeline)]) for stage, pipeline in stages]
    steps = [found for _, own in trees for step in own for found in step.walk()]
    for _, step in steps:
        step.skipped = step.name in skipped
    for place, pipeline in passes.items():
        match = _PLACE.fullmatch(place)
        assert match is not None
        side, within, name = match.groups()
        found = [(own, step) for own, step in steps if step.name == name and within in (None, own)]
        if not found:
            known = sorted({step.name for _, step in steps})
            raise InputError(
                f"'passes' names '{place}', but nothing that runs is '{match[0].partition(':')[2]}'"
                f"{did_you_mean(name, known)}; there are {', '.join(known)}"
            )
        if len(found) > 1:
            holders = [own for own, _ in found if own]
            once = sorted(own for own in set(holders) if holders.count(own) == 1)
            hint = f": say {', '.join(f'{side}:{own}/{name}' for own in once)}" if once else ": name one beside it"
            raise InputError(f"'passes' names '{place}', but '{name}' runs {len(found)} times{hint}")
        (found[0][1].before if side == "before" else found[0][1].after).append(pipeline)
    return [(stage, ",".join(filter(None, (step.render()[0] for step in own)))) for stage, own in trees]


def passes_digest(passes: Mapping[str, str]) -> dict[str, str] | None:
    """What of callers' passes decides about results, for keys of caches: each pass's file, as a digest.

    None where the source of a pass can't be read, as in an interactive session. Modules that a pass's file imports
    aren't looked at.
    """
    digests: dict[str, str] = {}
    for pipeline in passes.values():
        for step in split(pipeline):
            own = PASSES.get(pass_name(step))
            if own is None or own.run.__module__.startswith("rlx_mlir."):
                continue
            try:
                source = inspect.getsourcefile(inspect.unwrap(own.run))
                digests[own.argument] = hashlib.sha256(Path(source or "").read_bytes()).hexdigest()
            except (OSError, TypeError):
                return None
    return digests
