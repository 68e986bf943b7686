"""Policies on the Hugging Face Hub: folders as `Policy.save` writes them, with a model card for people.

    save_pretrained(policy, "folder", card=...)      push_to_hub(policy, "me/my-policy", card=...)
    policy = from_pretrained("me/my-policy")

A card of ours (evaluate/cards.py) becomes the model card: its text as it is, its claims as evaluation results that the
Hub shows. It is kept as card.md too, so that `mast verify` can check whoever downloads it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from mast_swarm import __version__
from mast_swarm.errors import MastError
from mast_swarm.evaluate.cards import CARD_FILE, read_card, read_claims
from mast_swarm.files import whole_file
from mast_swarm.model.learned import Learned
from mast_swarm.model.policy import load_learned
from mast_swarm.robot.extras import needed
from mast_swarm.tasks import registry
from mast_swarm.zoo import CONFIG_FILE, WEIGHTS_FILE

README = "README.md"
_FILES = (CONFIG_FILE, WEIGHTS_FILE, CARD_FILE, README)


def save_pretrained(
    policy: Learned,
    folder: str | Path,
    *,
    card: str | Path | None = None,
    license: str | None = None,
    repo_id: str = "OWNER/NAME",
    overwrite: bool = False,
) -> Path:
    """Write config.json, model.safetensors and a model card to a folder; the folder again.

    card: a card.md, or a folder that holds one such as that of a shipped policy; left out: the card tells what the
    settings tell. Give the card only of this very policy: it states what was measured. repo_id: what the card's example
    loads. overwrite: as in `Policy.save`.
    """
    folder = Path(folder)
    text = _model_card(policy, _card_path(card), license, repo_id)
    policy.save(folder, overwrite=overwrite)
    if card is None:
        (Path(folder) / CARD_FILE).unlink(missing_ok=True)  # of the policy that was there before
    else:
        with whole_file(folder / CARD_FILE) as part:
            part.write_text(_card_path(card).read_text(encoding="utf-8"), encoding="utf-8")  # type: ignore[union-attr]
    with whole_file(folder / README) as part:
        part.write_text(text, encoding="utf-8")
    return folder


def from_pretrained(
    name: str | Path,
    *,
    revision: str | None = None,
    cache_dir: str | Path | None = None,
    token: str | None = None,
    local_files_only: bool = False,
) -> Learned:
    """The policy in a folder, of that name in the zoo, or else in the Hub's repository of that name (owner/name).

    revision: a branch, tag or commit of the repository. local_files_only: take what was downloaded before.
    """
    if Path(name).is_dir() or str(name) in registry.policies():
        return load_learned(name)
    if str(name).count("/") != 1:
        raise MastError(
            f"'{name}' is neither a folder nor a shipped policy ({', '.join(registry.policies())}) nor owner/name on "
            "the Hub"
        )
    hub = _hub()
    try:
        found = hub.snapshot_download(
            str(name),
            revision=revision,
            cache_dir=cache_dir,
            token=token,
            local_files_only=local_files_only,
            allow_patterns=list(_FILES),
        )
    except (OSError, ValueError, hub.errors.HfHubHTTPError) as error:
        raise MastError(f"cannot get '{name}' from the Hub: {_first_line(error)}") from None
    return load_learned(found)


def push_to_hub(
    policy: Learned,
    repo_id: str,
    *,
    card: str | Path | None = None,
    license: str | None = None,
    private: bool | None = None,
    token: str | None = None,
    revision: str | None = None,
    commit_message: str = "Upload a MAST policy",
) -> str:
    """Upload what `save_pretrained` writes to a repository, which is made if it is not there; its address."""
    hub = _hub()
    with tempfile.TemporaryDirectory() as made:
        folder = save_pretrained(policy, Path(made) / "policy", card=card, license=license, repo_id=repo_id)
        api = hub.HfApi(token=token)
        try:
            address = api.create_repo(repo_id, private=private, exist_ok=True)
            api.upload_folder(repo_id=repo_id, folder_path=folder, revision=revision, commit_message=commit_message)
        except (OSError, ValueError, hub.errors.HfHubHTTPError) as error:
            raise MastError(f"cannot upload to '{repo_id}': {_first_line(error)}") from None
    return str(address)


def _hub() -> Any:
    hub = needed("huggingface_hub", "huggingface_hub", "the Hub needs", "hub")
    needed("huggingface_hub.errors", "huggingface_hub", "the Hub needs", "hub")
    return hub


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _card_path(card: str | Path | None) -> Path | None:
    if card is None:
        return None
    path = Path(card)
    return path / CARD_FILE if path.is_dir() else path


def _model_card(policy: Learned, card: Path | None, license: str | None, repo_id: str) -> str:
    """The text of README.md: what the Hub reads between two lines ---, and what people read."""
    hub, config = _hub(), policy.config
    task = config.task or "any task"
    results = [] if card is None else _results(hub, card, config.task)
    data = hub.ModelCardData(
        library_name="mast-swarm",
        pipeline_tag="robotics",
        license=license,
        tags=["multi-robot", "swarm", "decentralized", config.kind, *([config.task] if config.task else [])],
        model_name=repo_id.rpartition("/")[2] if results else None,
        eval_results=results or None,
    )
    body = _plain(policy, task) if card is None else read_card(card)[1].strip()
    use = (
        "## How to use it\n\n"
        f"Made with mast-swarm {__version__}; `pip install 'mast-swarm[hub]'`.\n\n"
        "```python\nimport mast_swarm\nfrom mast_swarm.interop.hub import from_pretrained\n\n"
        f'policy = from_pretrained("{repo_id}")\n```\n'
    )
    return f"---\n{data.to_yaml()}\n---\n\n{body}\n\n{use}"


def _plain(policy: Learned, task: str) -> str:
    """What the settings alone tell of a policy."""
    count = sum(weight.numel() for weight in policy.parameters())
    rows = "\n".join(f"| {name} | {value} |" for name, value in policy.config.to_dict().items())
    return (
        f"# A {policy.config.kind} policy for {task}\n\n"
        f"Robots decide alone, each from what it senses and from messages of others. {count:,} parameters. Nothing has "
        f"been stated about how well it does.\n\n| setting | value |\n|---|---|\n{rows}"
    )


def _results(hub: Any, card: Path, task: str) -> list[Any]:
    """The claims of a card as evaluation results."""
    return [
        hub.EvalResult(
            task_type="robotics",
            task_name=task,
            dataset_type=task,
            dataset_name=", ".join(f"{name} {value}" for name, value in claim.settings.items()),
            metric_type=claim.metric,
            metric_name=f"{claim.metric} at t = {claim.t:g} s (95 % interval ± {claim.ci95:g})",
            metric_value=claim.mean,
        )
        for claim in read_claims(card)
    ]
