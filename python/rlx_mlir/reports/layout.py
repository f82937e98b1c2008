# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where the boxes of a drawing stand, and how lines go between them: layers from top to bottom, after Sugiyama.

Boxes get layers by the longest path that leads to them. A line over several layers passes each at a point of its own;
lines from one place share these points, so that a value that many read is one line with branches. The order within a
layer follows barycentres, the one with the fewest crossings of all sweeps is taken. Positions are means of what a box
is connected with, as near as the order allows (isotonic regression), which is found by sweeps, too.
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, field

Point = tuple[float, float]

#: Room between boxes beside each other, between lines that pass, and between layers.
_BESIDE, _LINES, _LAYERS = 28.0, 14.0, 30.0
#: How much room more there is between layers for lines that go far to a side, at most.
_SLOPE, _MOST_SLOPE = 0.07, 44.0
_ORDER_SWEEPS, _PLACE_SWEEPS = 10, 24
#: How straight a line is kept: between points of it, at a box, and between two boxes.
_WEIGHTS = (8.0, 2.0, 1.0)
#: How much frames are drawn to the middle: their lines end and begin anywhere, and would lead them ever further away.
_GRAVITY = 0.4


@dataclass(eq=False)
class Box:
    """What stands in a layer.

    Attributes:
        width, height: of it.
        tops, bottoms: where lines end at its upper side, and begin at its lower side, from its left.
        rank: `first` in the first layer, `last` in the last, `free` otherwise.
        fixed: whether each line has its place at a side; else places are exchanged so that lines don't cross.
        pull: how much its lines pull at what they join.
    """

    width: float
    height: float
    tops: Sequence[float] = ()
    bottoms: Sequence[float] = ()
    rank: str = "free"
    fixed: bool = True
    pull: float = 1.0


@dataclass(frozen=True)
class Link:
    """A line from a place at a box's lower side to one at the upper side of a later box, all by their numbers."""

    source: int
    bottom: int
    target: int
    top: int


@dataclass
class Layout:
    """Where boxes stand: their upper left corners; and the points of each line, which are straight or curves by turns.

    A line begins at the first point, goes straight down to the second, from there in a curve to the third, straight
    down to the fourth, and so on.
    """

    width: float
    height: float
    corners: list[Point]
    lines: list[list[Point]]


def layers(boxes: Sequence[Box], links: Sequence[Link]) -> list[int]:
    """The layer of each box; links lead to later boxes alone."""
    start = int(any(box.rank == "first" for box in boxes))
    found = [0 if box.rank == "first" else start for box in boxes]
    outs: list[set[int]] = [set() for _ in boxes]
    ins: list[set[int]] = [set() for _ in boxes]
    for link in links:
        outs[link.source].add(link.target)
        ins[link.target].add(link.source)
    for number in range(len(boxes)):
        found[number] = max([found[number], *(found[source] + 1 for source in ins[number])])
    # What joins fewer lines above than below stands near its readers, inputs among them.
    for number in reversed(range(len(boxes))):
        if boxes[number].rank == "free" and len(ins[number]) < len(outs[number]):
            found[number] = min(found[target] for target in outs[number]) - 1
    end = max([own for own, box in zip(found, boxes, strict=True) if box.rank != "last"], default=-1) + 1
    return [end if box.rank == "last" else own for own, box in zip(found, boxes, strict=True)]


def arrange(boxes: Sequence[Box], links: Sequence[Link], found: Sequence[int] | None = None) -> Layout:
    """The layout of boxes and lines; `found` is what `layers` gave."""
    drawing = _Drawing(boxes, links, layers(boxes, links) if found is None else found)
    drawing.order()
    drawing.place()
    return drawing.layout()


@dataclass(eq=False)
class _End:
    """A part of a line, between spots of layers that follow each other: their ports, and how straight it is kept."""

    upper: _Spot
    bottom: int
    lower: _Spot
    top: int
    weight: float


@dataclass(eq=False)
class _Spot:
    """A box, or a point of a line, in a layer."""

    layer: int
    width: float
    box: int = -1
    order: float = 0.0
    x: float = 0.0
    ups: list[_End] = field(default_factory=list)
    downs: list[_End] = field(default_factory=list)

    @property
    def margin(self) -> float:
        return _BESIDE if self.box >= 0 else _LINES


class _Drawing:
    """A layout in work."""

    def __init__(self, boxes: Sequence[Box], links: Sequence[Link], found: Sequence[int]) -> None:
        self._boxes, self._links = boxes, links
        self._spots = [
            _Spot(layer, box.width, number) for number, (layer, box) in enumerate(zip(found, boxes, strict=True))
        ]
        self._tops, self._bottoms = (
            [list(side) if box.fixed else [box.width / 2] * len(side) for box, side in zip(boxes, sides, strict=True)]
            for sides in ([box.tops for box in boxes], [box.bottoms for box in boxes])
        )
        self._layers: list[list[_Spot]] = [[] for _ in range(max(found, default=-1) + 1)]
        for spot in self._spots:
            self._layers[spot.layer].append(spot)
        self._chains: dict[tuple[int, int], list[_Spot]] = {}
        for link in sorted(links, key=lambda own: self._spots[own.target].layer):
            self._join(link)
        for layer in self._layers:
            layer.sort(key=lambda spot: spot.order if spot.box < 0 else spot.box)
            for number, spot in enumerate(layer):
                spot.order = number

    def _join(self, link: Link) -> None:
        """Leads a line through the layers between its ends, as far as another from the same place doesn't already."""
        source, target = self._spots[link.source], self._spots[link.target]
        chain = self._chains.setdefault((link.source, link.bottom), [])
        pull = self._boxes[link.source].pull
        while source.layer + len(chain) + 1 < target.layer:
            spot = _Spot(source.layer + len(chain) + 1, 0.0, order=link.source + 0.5)
            self._layers[spot.layer].append(spot)
            self._connect(chain[-1] if chain else source, spot, 0 if chain else link.bottom, 0, pull)
            chain.append(spot)
        before = target.layer - source.layer - 2
        last, port = (chain[before], 0) if before >= 0 else (source, link.bottom)
        self._connect(last, target, port, link.top, pull * self._boxes[link.target].pull)

    @staticmethod
    def _connect(upper: _Spot, lower: _Spot, bottom: int, top: int, pull: float) -> None:
        """Joins spots of layers that follow each other, at ports of theirs."""
        end = _End(upper, bottom, lower, top, pull * _WEIGHTS[(upper.box >= 0) + (lower.box >= 0)])
        upper.downs.append(end)
        lower.ups.append(end)

    def _top(self, end: _End) -> float:
        """Where a line ends, from the left of what it ends at."""
        return self._tops[end.lower.box][end.top] if end.lower.box >= 0 else 0.0

    def _bottom(self, end: _End) -> float:
        """Where a line begins, from the left of what it begins at."""
        return self._bottoms[end.upper.box][end.bottom] if end.upper.box >= 0 else 0.0

    # -- order ---------------------------------------------------------------------------------------------------------

    def order(self) -> None:
        """Orders the layers so that few lines cross."""
        best, fewest = self._orders(), self._crossings()
        for sweep in range(_ORDER_SWEEPS):
            if not fewest:
                break
            down = sweep % 2 == 0
            for layer in self._layers[1:] if down else self._layers[-2::-1]:
                self._sort(layer, down)
            if (now := self._crossings()) < fewest:
                best, fewest = self._orders(), now
        for layer, orders in zip(self._layers, best, strict=True):
            for spot, number in orders:
                spot.order = number
            layer.sort(key=lambda spot: spot.order)

    def _orders(self) -> list[list[tuple[_Spot, float]]]:
        return [[(spot, spot.order) for spot in layer] for layer in self._layers]

    def _sort(self, layer: list[_Spot], down: bool) -> None:
        """Sorts a layer by the means of where its lines come from; what has none keeps its place."""
        keys = {}
        for spot in layer:
            places = [self._start(end) for end in spot.ups] if down else [self._end(end) for end in spot.downs]
            keys[spot] = sum(places) / len(places) if places else None
        moving = sorted((spot for spot in layer if keys[spot] is not None), key=lambda own: (keys[own], own.order))
        following = iter(moving)
        layer[:] = [spot if keys[spot] is None else next(following) for spot in layer]
        for number, spot in enumerate(layer):
            spot.order = number

    def _start(self, end: _End) -> float:
        """Where in the order of its layer a line begins."""
        return end.upper.order + self._share(end.upper, self._bottom(end))

    def _end(self, end: _End) -> float:
        """Where in the order of its layer a line ends."""
        return end.lower.order + self._share(end.lower, self._top(end))

    def _share(self, spot: _Spot, offset: float) -> float:
        """Where at a box's side a line is, from 0 to 0.9: the places of one box are between it and the next."""
        is_fixed = spot.box >= 0 and self._boxes[spot.box].fixed and spot.width
        return 0.9 * offset / spot.width if is_fixed else 0.45

    def _crossings(self) -> int:
        total = 0
        for layer in self._layers[1:]:
            ends = sorted((self._start(end), self._end(end)) for spot in layer for end in spot.ups)
            seen: list[float] = []
            for _, end in ends:
                total += len(seen) - bisect_right(seen, end)
                insort(seen, end)
        return total

    # -- positions -----------------------------------------------------------------------------------------------------

    def place(self) -> None:
        """Gives every spot its x: near what it is connected with, in order, without overlaps."""
        for layer in self._layers:
            self._settle(layer, [0.0] * len(layer), [1.0] * len(layer))
        for sweep in range(_PLACE_SWEEPS):
            down = sweep % 2 == 0
            last = sweep >= _PLACE_SWEEPS - 4
            for layer in self._layers if down else reversed(self._layers):
                wanted, weights = [], []
                for spot in layer:
                    above, below = (spot.ups if down or last else []), (spot.downs if last or not down else [])
                    total = sum(end.weight for end in (*above, *below))
                    means = sum((end.upper.x + self._bottom(end) - self._top(end)) * end.weight for end in above)
                    means += sum((end.lower.x + self._top(end) - self._bottom(end)) * end.weight for end in below)
                    if spot.box >= 0 and self._boxes[spot.box].fixed and spot.width:
                        total, means = total + _GRAVITY, means - _GRAVITY * spot.width / 2
                    wanted.append(means / total if total else spot.x)
                    weights.append(total or 0.1)
                self._settle(layer, wanted, weights)
        for chain in self._chains.values():
            self._straighten(chain)
        free = [spot for spot in self._spots if not self._boxes[spot.box].fixed]
        for spot in free:
            self._bottoms[spot.box] = self._ports(spot, [(end.bottom, end.lower, self._top(end)) for end in spot.downs])
        for spot in free:
            self._tops[spot.box] = self._ports(spot, [(end.top, end.upper, self._bottom(end)) for end in spot.ups])
        least = min((spot.x for layer in self._layers for spot in layer), default=0.0)
        for layer in self._layers:
            for spot in layer:
                spot.x -= least

    def _straighten(self, chain: Sequence[_Spot]) -> None:
        """Makes what passes layers straight for as many of them as there is room."""
        at = 0
        while at < len(chain):
            low, high = self._room(chain[at])
            end = at + 1
            while end < len(chain):
                left, right = self._room(chain[end])
                if max(low, left) > min(high, right):
                    break
                low, high, end = max(low, left), min(high, right), end + 1
            mean = sum(spot.x for spot in chain[at:end]) / (end - at)
            if not at:
                (begin,) = chain[0].ups
                mean = begin.upper.x + self._bottom(begin)
            for spot in chain[at:end]:
                spot.x = min(max(mean, low), high)
            at = end

    def _room(self, spot: _Spot) -> tuple[float, float]:
        """The least and the largest x that a point of a line can have between its neighbours."""
        layer = self._layers[spot.layer]
        number = int(spot.order)
        low, high = -math.inf, math.inf
        if number:
            before = layer[number - 1]
            low = before.x + before.width + max(before.margin, spot.margin)
        if number + 1 < len(layer):
            after = layer[number + 1]
            high = after.x - max(after.margin, spot.margin)
        return min(low, spot.x), max(high, spot.x)

    def _ports(self, spot: _Spot, ends: Sequence[tuple[int, _Spot, float]]) -> list[float]:
        """Places at a side of a box, so that lines are straight, or lead to the nearer side, and don't cross.

        Args:
            ends: the ports of lines, what these lead to, and where they end there.
        """
        lines: dict[int, list[tuple[float, float]]] = {}
        for port, other, offset in ends:
            lines.setdefault(port, []).append((other.x + offset, self._facing(spot, other, offset)))
        means = {port: [sum(own) / len(own) for own in zip(*found, strict=True)] for port, found in lines.items()}
        ports = sorted(means, key=means.__getitem__)
        places = _apart([means[port][1] for port in ports], spot.width)
        found = dict(zip(ports, places, strict=True))
        return [found.get(port, spot.width / 2) for port in range(max(found, default=-1) + 1)]

    def _facing(self, spot: _Spot, other: _Spot, offset: float) -> float:
        """Where at a box's side a line to another one is straight, or nearly so; `offset` is the other's port."""
        least, most = spot.x, spot.x + spot.width
        if other.box < 0 or self._boxes[other.box].fixed:
            return min(max(other.x + offset, least), most) - spot.x
        left, right = max(least, other.x), min(most, other.x + other.width)
        return ((left + right) / 2 if left < right else min(max(other.x + offset, least), most)) - spot.x

    @staticmethod
    def _settle(layer: Sequence[_Spot], wanted: Sequence[float], weights: Sequence[float]) -> None:
        """Gives spots the positions nearest to those that are wanted, by weighted squares, without overlaps."""
        offsets, at = [], 0.0
        for number, spot in enumerate(layer):
            if number:
                before = layer[number - 1]
                at += before.width + max(before.margin, spot.margin)
            offsets.append(at)
        for spot, x in zip(layer, _in_order(wanted, weights, offsets), strict=True):
            spot.x = x

    # -- result --------------------------------------------------------------------------------------------------------

    def layout(self) -> Layout:
        """The corners of boxes and the points of lines."""
        tops, bottoms, at = [], [], 0.0
        for number, layer in enumerate(self._layers):
            if number:
                ends = [end for spot in layer for end in spot.ups]
                far = max(
                    (abs(end.upper.x + self._bottom(end) - end.lower.x - self._top(end)) for end in ends), default=0.0
                )
                at += _LAYERS + min(_SLOPE * far, _MOST_SLOPE)
            tops.append(at)
            at += max((self._boxes[spot.box].height for spot in layer if spot.box >= 0), default=0.0)
            bottoms.append(at)
        corners = []
        for spot, box in zip(self._spots, self._boxes, strict=True):
            room = bottoms[spot.layer] - tops[spot.layer] - box.height
            share = 1.0 if not spot.ups and spot.downs else 0.0 if spot.ups and not spot.downs else 0.5
            corners.append((spot.x, tops[spot.layer] + share * room))
        lines: list[list[Point]] = [[] for _ in self._links]
        drawn: dict[tuple[int, int], int] = {}
        for number in sorted(range(len(lines)), key=lambda own: self._spots[self._links[own].target].layer):
            lines[number] = self._line(self._links[number], corners, tops, bottoms, drawn)
        width = max((spot.x + spot.width for layer in self._layers for spot in layer), default=0.0)
        return Layout(width, at, corners, lines)

    def _line(
        self,
        link: Link,
        corners: Sequence[Point],
        tops: Sequence[float],
        bottoms: Sequence[float],
        drawn: dict[tuple[int, int], int],
    ) -> list[Point]:
        """The points of a line, from where it leaves those from the same place; `drawn` counts points of these."""
        source, target = self._spots[link.source], self._spots[link.target]
        (x, y), (end, below) = corners[link.source], corners[link.target]
        x, end = x + self._bottoms[link.source][link.bottom], end + self._tops[link.target][link.top]
        points = [(x, y + self._boxes[link.source].height), (x, bottoms[source.layer])]
        chain = self._chains[link.source, link.bottom][: target.layer - source.layer - 1]
        shared = drawn.get((link.source, link.bottom), -1)
        if shared >= 0:  # to where the last one left
            x, y = (chain[shared - 1].x, bottoms[chain[shared - 1].layer]) if shared else points[-1]
            points = [(x, y), (x, y)]
        for spot in chain[max(shared, 0) :]:
            points += [(spot.x, tops[spot.layer]), (spot.x, bottoms[spot.layer])]
        drawn[link.source, link.bottom] = len(chain)
        return [*points, (end, tops[target.layer]), (end, below)]


def _in_order(wanted: Sequence[float], weights: Sequence[float], offsets: Sequence[float]) -> list[float]:
    """Positions near to those that are wanted, by weighted squares, that grow as much as `offsets` do, or more."""
    blocks: list[tuple[float, float, int]] = []  # mean, weight, how many
    for want, weight, offset in zip(wanted, weights, offsets, strict=True):
        mean, count = want - offset, 1
        while blocks and blocks[-1][0] > mean:
            other, own, size = blocks.pop()
            mean = (mean * weight + other * own) / (weight + own)
            weight, count = weight + own, count + size
        blocks.append((mean, weight, count))
    means = [mean for mean, _, count in blocks for _ in range(count)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=True)]


def _apart(wanted: Sequence[float], width: float) -> list[float]:
    """Places at a side of a box near to those that are wanted, in order, apart from each other and from the corners."""
    count = len(wanted)
    step = min(_LINES, width / (count + 1))
    offsets = [step * number for number in range(count)]
    found = _in_order(wanted, [1.0] * count, offsets)
    return [min(max(x, step * (number + 1)), width - step * (count - number)) for number, x in enumerate(found)]
