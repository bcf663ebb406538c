"""The scale set at the service: found or created, kept as the spec wants it, and removed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from arc_controller.actions import (
    DEFAULT_RUNNER_GROUP_ID,
    ActionsClient,
    BadRequest,
    Label,
    RunnerScaleSet,
    RunnerSetting,
    ScaleSetNotFound,
)
from arc_controller.api.v1alpha1 import Annotation, AutoscalingRunnerSet
from arc_controller.api.v1alpha1 import Label as LabelKey
from arc_controller.controllers.labels import url_labels
from arc_controller.controllers.scale_set import (
    REGISTERED_FOR,
    is_copy,
    registered_name,
    scale_set_id,
)
from arc_controller.controllers.scale_set_departure import DEPARTED
from arc_controller.runtime.lazycopy import LazyCopy

DEFAULT_GROUP = "Default"
"""What the service calls the runner group that every account has."""

_URL_LABELS = (LabelKey.ENTERPRISE, LabelKey.ORGANIZATION, LabelKey.REPOSITORY)


@dataclass(frozen=True, slots=True)
class Registration:
    """What is kept of a registration, in annotations and labels of the AutoscalingRunnerSet."""

    id: int
    name: str
    group: str

    @classmethod
    def wanted(cls, scale_set: AutoscalingRunnerSet, id_: int) -> Self:
        """Name and group as the spec says them: the service may spell them differently, and a
        record of *its* spelling would differ from the spec for ever."""
        return cls(id_, registered_name(scale_set), scale_set.spec.runner_group or DEFAULT_GROUP)

    @property
    def annotations(self) -> dict[str, str]:
        return {
            Annotation.RUNNER_SCALE_SET_ID: str(self.id),
            Annotation.RUNNER_SCALE_SET_NAME: self.name,
            Annotation.RUNNER_GROUP_NAME: self.group,
        }


def is_recorded(scale_set: AutoscalingRunnerSet) -> bool:
    """Whether annotations and labels say that it is registered as the spec wants it."""
    id_ = scale_set_id(scale_set)
    if not id_:
        return False
    annotations, labels = scale_set.metadata.annotations, scale_set.metadata.labels
    wanted = Registration.wanted(scale_set, id_).annotations
    urls = url_labels(scale_set.spec.github_config_url)
    return all(
        annotations.get(name, "").casefold() == value.casefold() for name, value in wanted.items()
    ) and all(labels.get(name, "") == urls.get(name, "") for name in _URL_LABELS)


def changed_labels(scale_set: AutoscalingRunnerSet) -> dict[str, str | None]:
    """The labels to set (or, None, to remove) so that they name what the config URL names."""
    urls = url_labels(scale_set.spec.github_config_url)
    labels = scale_set.metadata.labels
    return {k: urls.get(k) for k in _URL_LABELS if labels.get(k, "") != urls.get(k, "")}


def record(scale_set: LazyCopy[AutoscalingRunnerSet], registration: Registration) -> None:
    """Put the registration into annotations and labels, to be written with the next
    `LazyCopy.patch`. What says this already is not copied."""
    labels = changed_labels(scale_set.obj)
    wanted = {**registration.annotations, REGISTERED_FOR: scale_set.obj.uid}
    if not labels and wanted.items() <= scale_set.obj.metadata.annotations.items():
        return
    metadata = scale_set.mutate().metadata
    if is_copy(scale_set.obj):
        metadata.annotations.pop(DEPARTED, None)  # another object's, too
    metadata.annotations.update(wanted)
    for name, value in labels.items():
        if value is None:
            metadata.labels.pop(name, None)
        else:
            metadata.labels[name] = value


def wanted_labels(scale_set: AutoscalingRunnerSet) -> list[Label]:
    """What jobs ask for: the name and `runnerScaleSetLabels`, each once, whatever its case."""
    names = [registered_name(scale_set), *scale_set.spec.runner_scale_set_labels]
    unique = {name.strip().casefold(): name.strip() for name in reversed(names) if name.strip()}
    return [Label(name=name) for name in reversed(unique.values())]


@dataclass(frozen=True, slots=True)
class Outcome:
    """`what` happened to `scale_set` at the service, in one word for an Event; ``""``: nothing."""

    scale_set: RunnerScaleSet
    what: str = ""
    labels_refused: str = ""


async def register(client: ActionsClient, scale_set: AutoscalingRunnerSet) -> Outcome:
    """Bring the scale set at the service to what the spec says, from whatever state.

    Looks for the id we know, then for one of the wanted name in the wanted group, and creates one
    if there is neither. Safe to repeat after any failure or cancellation. Raises `ActionsError`.
    """
    group_id = DEFAULT_RUNNER_GROUP_ID
    if scale_set.spec.runner_group:
        group_id = (await client.get_runner_group(scale_set.spec.runner_group)).id
    wanted = RunnerScaleSet(
        name=registered_name(scale_set),
        runner_group_id=group_id,
        labels=wanted_labels(scale_set),
        runner_setting=RunnerSetting(disable_update=True),
    )
    found = await _known(client, scale_set)
    if found is None:
        found = await client.get_runner_scale_set(wanted.name, group_id)
        if found is None:
            return Outcome(await client.create_runner_scale_set(wanted), "Created")
        what = "Adopted"
    else:
        what = ""

    if found.name.casefold() != wanted.name.casefold() or found.runner_group_id != group_id:
        changes = RunnerScaleSet(name=wanted.name, runner_group_id=group_id)
        found = await client.update_runner_scale_set(found.id, changes)
        what = what or "Updated"
    if _names(found.labels) == _names(wanted.labels):
        return Outcome(found, what)
    try:
        changes = RunnerScaleSet(name=wanted.name, labels=wanted.labels)
        return Outcome(await client.update_runner_scale_set(found.id, changes), what or "Updated")
    except BadRequest as error:
        # Not every server lets labels of an existing scale set change. Jobs still run.
        return Outcome(found, what, labels_refused=error.message or f"status {error.status}")


async def _known(client: ActionsClient, scale_set: AutoscalingRunnerSet) -> RunnerScaleSet | None:
    """The scale set whose id we recorded, if the service still means the same by it.

    After a change of the config URL the id may be somebody else's scale set, hence the names.
    """
    id_ = scale_set_id(scale_set)
    if not id_ or changed_labels(scale_set):
        return None
    try:
        found = await client.get_runner_scale_set_by_id(id_)
    except ScaleSetNotFound:
        return None
    recorded = scale_set.metadata.annotations.get(Annotation.RUNNER_SCALE_SET_NAME, "")
    ours = {recorded.casefold(), registered_name(scale_set).casefold()}
    return found if found.name.casefold() in ours else None


def _names(labels: list[Label]) -> set[str]:
    return {label.name.casefold() for label in labels}
