"""The plan of a query: one input DataFrame, the stages over it, and the outputs of those."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from sparkjet.errors import AnalysisError
from sparkjet.plan.inputs import several_substreams, tracker_of
from sparkjet.plan.windowed_aggregation import Seen

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.plan.inputs import Input
    from sparkjet.plan.transformations import Steps
    from sparkjet.plan.windowed_aggregation import Stage
    from sparkjet.sinks.protocol import Sink
    from sparkjet.time import InputTracker

IS_EARLY = "is_early"


class Rows(Enum):
    """Which rows of a stage an output gets."""

    RESULTS = "results"
    LATE = "late"


@dataclass(frozen=True)
class Output:
    """Rows of a stage on their way to a sink.

    Attributes:
        name: What the record calls it; the same in every run.
        stage: The stage.
        rows: Which of its rows.
        shape: A DataFrame with the schema of these rows, for analysis only.
        finishing: The user's transformations of them.
        sink: Where they go.
        format: What the user calls the sink.
        early_period: How often early rows come, in microseconds; 0 in update mode without a period (every epoch),
            None where only final rows are wanted.
    """

    name: str
    stage: Stage
    rows: Rows
    shape: DataFrame
    finishing: Callable[[DataFrame], DataFrame]
    sink: Sink
    format: str
    early_period: int | None = None

    def check(self) -> None:
        """Have the sink look at the rows and at where they go; nothing is changed.

        Raises:
            AnalysisError: The rows cannot be written there, or it cannot be reached.
        """
        self.sink.check(self.finished(self.shape).schema)

    def finished(self, rows: DataFrame, *, early: bool = False) -> DataFrame:
        """The rows as the sink gets them."""
        finished = self.finishing(rows)
        return finished if self.early_period is None else finished.withColumn(IS_EARLY, F.lit(early))


@dataclass(frozen=True)
class Plan:
    """What a query computes; pure description, made by :func:`plan_of`.

    Attributes:
        source: The streaming DataFrame that Spark runs, with the hidden columns.
        held: Whether a batch of it is held in memory, as it is read more than once.
        shared: Number of transformations that all stages which read it begin with; they come before it is held.
        inputs: The inputs united in it.
        stages: By name, each after its parent.
        outputs: In the order in which they are written.
    """

    source: DataFrame
    held: bool
    shared: int
    inputs: tuple[Input, ...]
    stages: Mapping[str, Stage]
    outputs: tuple[Output, ...]

    @property
    def roots(self) -> list[str]:
        """Names of the stages that aggregate the input."""
        return [name for name, stage in self.stages.items() if stage.parent is None]

    @property
    def seen(self) -> Seen:
        """What stage 1 has to tell of event time."""
        if self.held:
            return Seen.NOTHING
        return Seen.EACH if several_substreams(self.inputs) else Seen.ALL

    @property
    def uses_clock(self) -> bool:
        """Whether an epoch can be due while nothing arrives."""
        return any(each.watermark.uses_clock for each in self.inputs) or any(
            bool(output.early_period) for output in self.outputs
        )

    @property
    def fingerprint(self) -> dict[str, Any]:
        """What must not change between two runs, because the saved state would no longer fit."""
        described: dict[str, Any] = {
            "inputs": {each.prefix: [each.watermark.event_time, *each.watermark.by] for each in self.inputs}
        }
        for name, stage in self.stages.items():
            parent = next((other for other, each in self.stages.items() if each is stage.parent), None)
            described[name] = {"reads": parent, **stage.fingerprint}
        return described

    def consumers(self, name: str) -> int:
        """How many outputs and stages read a stage's final rows."""
        stage = self.stages[name]
        outputs = sum(output.stage is stage and output.rows is Rows.RESULTS for output in self.outputs)
        return outputs + sum(other.parent is stage for other in self.stages.values())

    def delivers_late_rows(self, name: str) -> bool:
        """Whether somebody wants the rows that a stage drops."""
        return any(output.stage is self.stages[name] and output.rows is Rows.LATE for output in self.outputs)

    def tracker(self) -> InputTracker:
        """A new watermark tracker."""
        return tracker_of(self.inputs, [stage.grid for stage in self.stages.values()])


def plan_of(outputs: Sequence[Output]) -> Plan:
    """The plan behind some outputs.

    Raises:
        AnalysisError: They do not all come from one ``withWatermark`` or ``union``.
    """
    stages: list[Stage] = []
    for output in outputs:
        stages += [stage for stage in output.stage.lineage if stage not in stages]
    root = stages[0]
    for stage in stages:
        if stage.parent is None and stage.steps.source is not root.steps.source:
            message = (
                "start: the results come from different inputs. One query reads one input once: derive all results "
                "from the same stream object (what withWatermark(…) or union(…) returned), or start two queries."
            )
            raise AnalysisError(message)
    chains = [stage.steps for stage in stages if stage.parent is None]
    held = len(chains) > 1 or not chains[0].markable
    return Plan(
        source=root.steps.source,
        held=held,
        shared=_shared(chains) if held else 0,
        inputs=root.inputs,
        stages={f"stage{i}": stage for i, stage in enumerate(stages)},
        outputs=tuple(outputs),
    )


def _shared(chains: Sequence[Steps]) -> int:
    count = 0
    for links in zip(*(chain.links for chain in chains), strict=False):
        # Below a filter, as the highest event times are those of all rows.
        if links[0].filters or any(link is not links[0] for link in links):
            break
        count += 1
    return count
