"""One commit to a dataset repository on the Hugging Face Hub, or nothing.

The commit names as its parent the state that was read before, so it is refused if the repository has changed since. If it
fails, a repository or branch that was made for it is deleted again, as long as it is empty; if the answer is lost, the
Hub is asked whether the commit is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from curate.errors import PACKAGE, CurateError, UsageError, first_line

_NAME = re.compile(r"[A-Za-z0-9][\w-]*(?:\.[\w-]+)*/\w(?:[\w.-]*\w)?")
_LONGEST_NAME = 96

REPORT = "curate-report.html"
_OWNED = re.compile(
    rf"(?:sft|dpo|dpo_natural|judgments)/.*\.parquet|plots/.*\.svg|{re.escape(REPORT)}"
)
"""Files that only a push writes: those that this push does not have are of an earlier one."""


_CHANGED = (
    "{repo} changed during the push; nothing was committed",
    None,
    "look at the changes, and push again",
)
_REFUSALS: Final = {
    401: (
        "the Hub does not accept the token",
        "a valid token with write access",
        "create one at https://huggingface.co/settings/tokens, then set HF_TOKEN or run `hf auth login`",
    ),
    403: (
        "the token has no write access to {repo}",
        "a token with write access",
        "give the token write access, or push to an owner that you may write for",
    ),
    404: (
        "the Hub has no {repo}, or the token has no access to it",
        None,
        "check the name, and that the token has write access",
    ),
    409: _CHANGED,
    412: _CHANGED,
}
"""Problem, what was expected, and fix, by status of the Hub's answer."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """Result of a push.

    Attributes:
        url: address of the commit.
        is_new_repo: the push made the repository.
        is_private: only its owners can see the repository.
        removed: files of an earlier push that the commit removed.
        is_unchanged: the repository had all files already; no commit was made.
    """

    url: str
    is_new_repo: bool
    is_private: bool
    removed: tuple[str, ...]
    is_unchanged: bool


def check_name(repo: str) -> None:
    """Raise UsageError for a name that no repository can have."""
    is_short = len(repo) <= _LONGEST_NAME
    if not is_short or not _NAME.fullmatch(repo) or "--" in repo or ".." in repo:
        raise UsageError(
            "not the name of a repository",
            got=repo,
            expected="owner/name of letters, digits, -, _ and ., 96 characters at most",
        )


def push_files(
    repo: str,
    files: Mapping[str, Path],
    *,
    public: bool,
    message: str,
    branch: str | None = None,
    endpoint: str | None = None,
) -> Pushed:
    """Push files to a dataset repository in one commit; make the repository if there is none.

    Args:
        repo: owner/name.
        files: path in the repository to the file on disk.
        public: make a new repository public; also required to push to a public one.
        message: the commit message.
        branch: made from the main branch if it is missing; the main branch by default.
        endpoint: address of the Hub; by default the value of `HF_ENDPOINT`.

    Raises:
        UsageError: there is no token, the repository is public without `public`, or as `check_name`.
        CurateError: the Hub refused or could not be reached; its content is unchanged.
    """
    from huggingface_hub import HfApi, get_token

    check_name(repo)
    if get_token() is None:
        raise UsageError(
            "there is no token for the Hub",
            expected="one with write access, in the variable HF_TOKEN or stored by `hf auth login`",
            fix="create one at https://huggingface.co/settings/tokens",
        )
    api = HfApi(endpoint=endpoint, library_name=PACKAGE, library_version=version(PACKAGE))
    return _Push(api, repo, branch, message).go(files, public=public)


class _Push:
    """One push in progress."""

    def __init__(self, api: Any, repo: str, branch: str | None, message: str) -> None:
        self.api = api
        self.repo = repo
        self.branch = branch
        self.message = message
        self.made_repo = False
        self.made_branch = False

    def go(self, files: Mapping[str, Path], *, public: bool) -> Pushed:
        with _explained(self.repo):
            is_private = self._open(public)
        parent: str | None = None
        stale: list[str] = []
        try:
            with _explained(self.repo):
                before = self._branch_info()
                parent = before.sha
                present = {file.rfilename for file in before.siblings}
                stale = sorted(name for name in present - files.keys() if _OWNED.fullmatch(name))
                return self._commit(files, stale, before.sha, is_private)
        except BaseException as error:
            if parent is not None and self._has_landed(parent):
                return Pushed(self._history, self.made_repo, is_private, tuple(stale), False)
            note = self._undo(parent)
            if note and isinstance(error, CurateError):
                fix = "; ".join(filter(None, (error.fix, note)))
                raise CurateError(
                    error.problem, got=error.got, expected=error.expected, fix=fix
                ) from error
            raise

    @property
    def _history(self) -> str:
        return f"{self.api.endpoint}/datasets/{self.repo}/commits/{self.branch or 'main'}"

    def _open(self, public: bool) -> bool:
        """Make the repository if there is none; return True if it is private."""
        from huggingface_hub.errors import RepositoryNotFoundError

        try:
            info = self.api.dataset_info(self.repo)
        except RepositoryNotFoundError:
            self._create(private=not public)
            self.made_repo = True
            return not public
        if not info.private and not public:
            raise UsageError(
                f"{self.repo} exists and is public",
                expected="a private repository, or --public if this is intended",
            )
        return bool(info.private)

    def _create(self, *, private: bool) -> None:
        from huggingface_hub.errors import HfHubHTTPError

        try:
            self.api.create_repo(self.repo, repo_type="dataset", private=private)
        except HfHubHTTPError as error:
            if error.response.status_code != 409:
                raise
            raise CurateError(
                f"{self.repo} exists, and the token has no access to it",
                expected="a token with read and write access, or another name",
            ) from error

    def _branch_info(self) -> Any:
        from huggingface_hub.errors import RevisionNotFoundError

        try:
            return self.api.dataset_info(self.repo, revision=self.branch)
        except RevisionNotFoundError:
            self.api.create_branch(self.repo, branch=self.branch, repo_type="dataset")
            self.made_branch = True
            return self.api.dataset_info(self.repo, revision=self.branch)

    def _commit(
        self, files: Mapping[str, Path], stale: list[str], parent: str, is_private: bool
    ) -> Pushed:
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        added = [
            CommitOperationAdd(path_in_repo=name, path_or_fileobj=path)
            for name, path in files.items()
        ]
        removed = [CommitOperationDelete(path_in_repo=name) for name in stale]
        info = self.api.create_commit(
            self.repo,
            [*added, *removed],
            commit_message=self.message,
            repo_type="dataset",
            revision=self.branch,
            parent_commit=parent,
        )
        return Pushed(info.commit_url, self.made_repo, is_private, tuple(stale), info.oid == parent)

    def _has_landed(self, parent: str) -> bool:
        """Return True if the commit is there although its answer was lost.

        Raises:
            CurateError: the Hub cannot be asked.
        """
        try:
            head, *_ = self.api.list_repo_commits(
                self.repo, repo_type="dataset", revision=self.branch
            )
        except Exception as error:  # whatever the transport raises
            raise CurateError(
                f"the connection broke, and it is not known whether {self.repo} has the commit",
                got=first_line(error),
                fix=f"look at {self._history}, or push again: what is there already is not committed twice",
            ) from error
        return bool(head.commit_id != parent and head.title == self.message)

    def _undo(self, parent: str | None) -> str | None:
        """Delete the repository or branch made for the commit if it is still empty; return a note on what is left."""
        try:
            if self.made_repo and self._is_untouched(None, None if self.made_branch else parent):
                self.api.delete_repo(self.repo, repo_type="dataset")
            elif self.made_branch and self._is_untouched(self.branch, parent):
                self.api.delete_branch(self.repo, branch=self.branch, repo_type="dataset")
        except Exception:  # whatever the transport raises; the first error is the one to report
            made = self.repo if self.made_repo else f"the branch {self.branch} of {self.repo}"
            return f"{made} was created and is empty; pushing again fills it"
        return None

    def _is_untouched(self, branch: str | None, parent: str | None) -> bool:
        info = self.api.dataset_info(self.repo, revision=branch)
        names = {file.rfilename for file in info.siblings}
        is_parent = parent is None or info.sha == parent
        return is_parent and (branch is not None or names <= {".gitattributes"})


@contextmanager
def _explained(repo: str) -> Iterator[None]:
    """Raise errors of the Hub or the network as CurateError that says what to do."""
    try:
        yield
    except CurateError:
        raise
    except Exception as error:
        # huggingface_hub lets the errors of its transport through, and which transport it uses (requests,
        # httpx) depends on its version; it raises ValueError and RuntimeError itself.
        raise _explain(error, repo) from error


def _explain(error: Exception, repo: str) -> CurateError:
    cause: BaseException = error
    # An upload's error is wrapped in a RuntimeError by the thread it ran in.
    while getattr(cause, "response", None) is None and cause.__cause__ is not None:
        cause = cause.__cause__
    response = getattr(cause, "response", None)
    status = getattr(response, "status_code", None)
    lines = str(getattr(cause, "server_message", None) or cause).strip().splitlines()
    got = lines[0] if lines else type(cause).__name__
    if status in _REFUSALS:
        problem, expected, fix = _REFUSALS[status]
        return CurateError(problem.format(repo=repo), got=got, expected=expected, fix=fix)
    if status is not None:
        problem = f"the Hub failed; nothing was committed to {repo}"
        fix = "push again, later if the Hub is down: uploaded files are not sent twice"
        got = f"{status}: {got}"
    elif isinstance(cause, ValueError):
        problem = f"the Hub refused the push to {repo}"
        fix = "do what its message says; nothing was changed"
        got = str(cause)
    else:
        problem = f"the Hub cannot be reached; nothing was committed to {repo}"
        fix = "fix the connection (HF_ENDPOINT, a proxy), then push again"
        got = f"{type(cause).__name__}: {got}"
    return CurateError(problem, got=got, fix=fix)
