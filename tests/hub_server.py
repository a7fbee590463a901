"""A Hugging Face Hub of one's own: its HTTP API for dataset repositories, kept in memory.

The real `huggingface_hub` and `datasets` talk to it (HF_ENDPOINT, with Xet off, or `endpoint=`), so what the tests
see is what goes over the wire. It stores what is committed, by commit, and gives it back; it refuses what the
Hub refuses: tokens it does not know, writing without the right, a parent that is not the head, a large file that
was never uploaded, front matter that is no YAML.
"""

from __future__ import annotations

import base64
import fnmatch
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

import yaml

Json = dict[str, Any]
Tree = dict[str, bytes]
Failure = tuple[str, str, int | None]
"""Method, a part of the path, and the status to answer with; None: the connection is cut."""

DATE = "2026-01-01T00:00:00.000Z"


@dataclass
class Commit:
    """One commit: what the repository holds after it."""

    oid: str
    title: str
    tree: Tree
    parent: str | None = None
    operations: list[Json] = field(default_factory=list)


@dataclass
class Repo:
    """One dataset repository."""

    private: bool
    commits: dict[str, Commit] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)

    def commit(self, branch: str, title: str, tree: Tree, operations: list[Json]) -> Commit:
        """Add a commit to a branch."""
        parent = self.branches.get(branch)
        said = json.dumps([parent, title, sorted((k, git_oid(v)) for k, v in tree.items())])
        made = Commit(hashlib.sha1(said.encode()).hexdigest(), title, tree, parent, operations)
        self.commits[made.oid] = made
        self.branches[branch] = made.oid
        return made

    def at(self, revision: str) -> Commit | None:
        """The commit of a branch or an oid."""
        return self.commits.get(self.branches.get(revision, revision))

    def history(self, branch: str = "main") -> list[Commit]:
        """Commits of a branch, the newest first."""
        found = []
        oid: str | None = self.branches.get(branch)
        while oid is not None:
            found.append(self.commits[oid])
            oid = self.commits[oid].parent
        return found


@dataclass
class HubServer:
    """A Hub that listens on a port of this machine.

    Attributes:
        token: the only one it takes.
        writable: owners the token may write for.
        repos: by owner/name.
        objects: large files by SHA-256.
        requests: method and path of every request, in order.
        fail: failures to answer with, each once; see `Failure`.
        lose: method and a part of a path: carried out, but the answer never comes.
    """

    token: str = "hf_test"
    writable: tuple[str, ...] = ("me",)
    repos: dict[str, Repo] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    bodies: list[tuple[str, Json]] = field(default_factory=list)
    fail: list[Failure] = field(default_factory=list)
    lose: list[tuple[str, str]] = field(default_factory=list)
    url: str = ""

    def files(self, repo: str, branch: str = "main") -> Tree:
        """What a branch of a repository holds."""
        found = self.repos[repo].at(branch)
        assert found is not None
        return found.tree

    def body(self, path: str) -> Json:
        """The JSON of the only request to a path."""
        [found] = [body for at, body in self.bodies if at == path]
        return found


@contextmanager
def hub_server(**options: Any) -> Iterator[HubServer]:
    """A `HubServer(**options)` that listens while the block runs."""
    hub = HubServer(**options)
    lock = threading.Lock()

    class Bound(Handler):
        server_hub = hub
        one_at_a_time = lock

    http = ThreadingHTTPServer(("127.0.0.1", 0), Bound)
    http.daemon_threads = True
    hub.url = f"http://127.0.0.1:{http.server_address[1]}"
    thread = threading.Thread(
        target=http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
    )
    thread.start()
    try:
        yield hub
    finally:
        http.shutdown()
        http.server_close()
        thread.join(10)


def git_oid(data: bytes) -> str:
    """As git names a blob."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Refusal(Exception):
    """A status and what the Hub says with it."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.code = status, message, code


def _is_large(path: str) -> bool:
    return fnmatch.fnmatch(path, "*.parquet")


class Handler(BaseHTTPRequestHandler):
    """Answers requests of one `HubServer`."""

    protocol_version = "HTTP/1.1"
    server_hub: ClassVar[HubServer]
    one_at_a_time: ClassVar[threading.Lock]

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def _answer(self) -> None:
        split = urlsplit(self.path)
        self.route, self.query = unquote(split.path), parse_qs(split.query)
        size = int(self.headers.get("Content-Length") or 0)
        if self.headers.get("Transfer-Encoding") == "chunked":
            self.data = b"".join(self._chunks())
        else:
            self.data = self.rfile.read(size)
        with self.one_at_a_time:
            hub = self.server_hub
            hub.requests.append((self.command, self.route))
            for failure in hub.fail:
                method, part, status = failure
                if method == self.command and part in self.route:
                    hub.fail.remove(failure)
                    if status is None:
                        self.close_connection = True
                        self.connection.close()
                        return
                    code = {"X_Error_Code": "RepoNotFound"} if status == 404 else {}
                    self._send(status, {"error": "made to fail"}, **code)
                    return
            try:
                handle, groups = self._find()
                handle(self, *groups)
            except Refusal as refusal:
                self._refuse(refusal)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline().split(b";")[0], 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def _find(self) -> tuple[Callable[..., None], tuple[str, ...]]:
        for method, pattern, handle in ROUTES:
            match = re.fullmatch(pattern, self.route)
            if match and self.command in method:
                return handle, match.groups()
        raise Refusal(404, f"no such route: {self.command} {self.route}")

    def _send(self, status: int, value: Any = None, data: bytes = b"", **headers: str) -> None:
        body = data if value is None else json.dumps(value).encode()
        for lost in self.server_hub.lose:
            if lost[0] == self.command and lost[1] in self.route:
                self.server_hub.lose.remove(lost)
                self.close_connection = True
                self.connection.close()
                return
        self.send_response(status)
        given = {name.replace("_", "-"): said for name, said in headers.items()}
        kind = "application/json" if value is not None else "application/octet-stream"
        for name, said in {"Content-Type": kind, "Content-Length": str(len(body)), **given}.items():
            self.send_header(name, said)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _refuse(self, refusal: Refusal) -> None:
        headers = {"X_Error_Message": refusal.message}
        if refusal.code:
            headers["X_Error_Code"] = refusal.code
        self._send(refusal.status, {"error": refusal.message}, **headers)

    @property
    def given(self) -> Any:
        """The request's JSON, kept for the test to look at."""
        value = json.loads(self.data)
        self.server_hub.bodies.append((self.route, value))
        return value

    def _who(self, *, must: bool = True) -> bool:
        """Whether the request's token is the right one."""
        said = self.headers.get("Authorization")
        if said is None:
            if must:
                raise Refusal(401, "Invalid username or password.")
            return False
        if said != f"Bearer {self.server_hub.token}":
            raise Refusal(401, "Invalid credentials in Authorization header")
        return True

    def _repo(self, name: str, *, write: bool = False) -> Repo:
        is_known = self._who(must=write)
        owner = name.split("/")[0]
        repo = self.server_hub.repos.get(name)
        may_read = is_known and owner in self.server_hub.writable
        if repo is None or (repo.private and not may_read):
            raise Refusal(404, "Repository not found", "RepoNotFound")
        if write and owner not in self.server_hub.writable:
            raise Refusal(403, "Forbidden: pass `create_pr=1` as a query parameter to create a PR")
        return repo

    def _at(self, repo: Repo, revision: str) -> Commit:
        found = repo.at(revision)
        if found is None:
            raise Refusal(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return found

    def whoami(self) -> None:
        self._who()
        self._send(200, {"type": "user", "name": "me", "orgs": []})

    def create(self) -> None:
        body = self.given
        self._who()
        owner = body.get("organization") or "me"
        if owner not in self.server_hub.writable:
            raise Refusal(403, f'You don\'t have the rights to create a dataset under "{owner}"')
        name = f"{owner}/{body['name']}"
        if name in self.server_hub.repos:
            raise Refusal(409, "You already created this dataset repo")
        assert body["type"] == "dataset"
        is_private = body.get("visibility") == "private" or body.get("private") is True
        repo = Repo(private=is_private)
        repo.commit("main", "initial commit", {".gitattributes": b"*.parquet filter=lfs\n"}, [])
        self.server_hub.repos[name] = repo
        self._send(200, {"url": f"{self.server_hub.url}/datasets/{name}", "name": name})

    def delete(self) -> None:
        body = self.given
        name = f"{body.get('organization') or 'me'}/{body['name']}"
        self._repo(name, write=True)
        del self.server_hub.repos[name]
        self._send(200, {})

    def info(self, name: str, revision: str | None = None) -> None:
        repo = self._repo(name)
        at = self._at(repo, revision or "main")
        self._send(
            200,
            {
                "id": name,
                "author": name.split("/")[0],
                "sha": at.oid,
                "private": repo.private,
                "gated": False,
                "disabled": False,
                "downloads": 0,
                "likes": 0,
                "tags": [],
                "lastModified": DATE,
                "createdAt": DATE,
                "siblings": [{"rfilename": path} for path in sorted(at.tree)],
            },
        )

    def tree(self, name: str, revision: str, folder: str | None = None) -> None:
        at = self._at(self._repo(name), revision)
        head = f"{folder.strip('/')}/" if folder else ""
        inside = {path: data for path, data in at.tree.items() if path.startswith(head)}
        if head and not inside:
            raise Refusal(404, f"{folder} does not exist on {revision}", "EntryNotFound")
        folders = {
            head + "/".join(path[len(head) :].split("/")[:depth])
            for path in inside
            for depth in range(1, path[len(head) :].count("/") + 1)
        }
        is_deep = self.query.get("recursive") in (["true"], ["True"], ["1"])
        shown = (p for p in sorted([*inside, *folders]) if is_deep or "/" not in p[len(head) :])
        self._send(200, [self._entry(path, at.tree) for path in shown])

    def _entry(self, path: str, tree: Tree) -> Json:
        if path not in tree:
            return {"type": "directory", "oid": git_oid(path.encode()), "size": 0, "path": path}
        data = tree[path]
        entry: Json = {"type": "file", "oid": git_oid(data), "size": len(data), "path": path}
        if _is_large(path):
            entry["lfs"] = {
                "oid": hashlib.sha256(data).hexdigest(),
                "size": len(data),
                "pointerSize": 130,
            }
        return entry

    def paths_info(self, name: str, revision: str) -> None:
        at = self._at(self._repo(name), revision)
        try:
            wanted = json.loads(self.data)["paths"]
        except ValueError:
            wanted = parse_qs(self.data.decode())["paths"]
        wanted = [wanted] if isinstance(wanted, str) else wanted
        known = {path.strip("/") for path in wanted}
        folders = {path for path in known if any(p.startswith(f"{path}/") for p in at.tree)}
        found = sorted(path for path in known if path in at.tree or path in folders)
        self._send(200, [self._entry(path, at.tree) for path in found])

    def refs(self, name: str) -> None:
        repo = self._repo(name)
        branches = [
            {"name": branch, "ref": f"refs/heads/{branch}", "targetCommit": oid}
            for branch, oid in repo.branches.items()
        ]
        self._send(200, {"branches": branches, "tags": [], "converts": []})

    def make_branch(self, name: str, branch: str) -> None:
        repo = self._repo(name, write=True)
        if branch in repo.branches:
            raise Refusal(409, "Reference already exists")
        repo.branches[branch] = repo.branches["main"]
        self._send(200, {})

    def delete_branch(self, name: str, branch: str) -> None:
        del self._repo(name, write=True).branches[branch]
        self._send(200, {})

    def commits(self, name: str, revision: str) -> None:
        repo = self._repo(name)
        self._at(repo, revision)
        said = [
            {
                "id": made.oid,
                "title": made.title,
                "message": "",
                "date": DATE,
                "authors": [{"user": "me", "avatar": ""}],
            }
            for made in repo.history(revision)
        ]
        self._send(200, said)

    def validate(self) -> None:
        body = self.given
        match = re.match(r"---\n(.*?)\n---", body["content"], re.DOTALL)
        try:
            data = yaml.safe_load(match[1]) if match else None
        except yaml.YAMLError as error:
            self._send(400, {"errors": [{"message": str(error)}], "warnings": []})
            return
        errors = [
            {"message": f'"{key}" is required'}
            for key in ("license", "configs", "size_categories")
            if not isinstance(data, dict) or not data.get(key)
        ]
        self._send(400 if errors else 200, {"errors": errors, "warnings": []})

    def preupload(self, name: str, revision: str) -> None:
        repo = self._repo(name, write=True)
        held = self._at(repo, revision).tree
        answers = []
        for file in self.given["files"]:
            path = file["path"]
            answer: Json = {"path": path, "shouldIgnore": False}
            answer["uploadMode"] = "lfs" if _is_large(path) else "regular"
            if path in held:
                large = hashlib.sha256(held[path]).hexdigest()
                answer["oid"] = large if _is_large(path) else git_oid(held[path])
            answers.append(answer)
        self._send(200, {"files": answers})

    def batch(self, name: str) -> None:
        self._repo(name, write=True)
        body = self.given
        assert "basic" in body["transfers"], "Xet is to be off in these tests"
        answers = []
        for file in body["objects"]:
            answer = {"oid": file["oid"], "size": file["size"]}
            if file["oid"] not in self.server_hub.objects:
                url = f"{self.server_hub.url}/lfs/{file['oid']}"
                answer["actions"] = {
                    "upload": {"href": url, "header": {}},
                    "verify": {"href": f"{url}/verify", "header": {}},
                }
            answers.append(answer)
        self._send(200, {"transfer": "basic", "objects": answers})

    def upload(self, oid: str) -> None:
        if hashlib.sha256(self.data).hexdigest() != oid:
            raise Refusal(400, "the content is not what its name says")
        self.server_hub.objects[oid] = self.data
        self._send(200)

    def verify(self, oid: str) -> None:
        if len(self.server_hub.objects.get(oid, b"")) != json.loads(self.data)["size"]:
            raise Refusal(404, "no such object")
        self._send(200, {})

    def add_commit(self, name: str, revision: str) -> None:
        repo = self._repo(name, write=True)
        if revision not in repo.branches:
            raise Refusal(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        lines = [json.loads(line) for line in self.data.splitlines()]
        assert lines[0]["key"] == "header"
        header, tree = lines[0]["value"], dict(self._at(repo, revision).tree)
        if header.get("parentCommit") not in (None, repo.branches[revision]):
            raise Refusal(412, "A commit has happened since. Please refresh and try again.")
        for line in lines[1:]:
            self._apply(line["key"], line["value"], tree)
        made = repo.commit(revision, header["summary"], tree, lines[1:])
        url = f"{self.server_hub.url}/datasets/{name}/commit/{made.oid}"
        self._send(
            200, {"success": True, "commitOid": made.oid, "commitUrl": url, "hookOutput": ""}
        )

    def _apply(self, key: str, value: Json, tree: Tree) -> None:
        path = value["path"]
        if key == "file":
            tree[path] = base64.b64decode(value["content"])
        elif key == "lfsFile":
            if value["oid"] not in self.server_hub.objects:
                raise Refusal(400, f"the large file of {path} was never uploaded")
            tree[path] = self.server_hub.objects[value["oid"]]
        elif key == "deletedFile":
            if tree.pop(path, None) is None:
                raise Refusal(404, "A file with this name doesn't exist", "EntryNotFound")
        else:
            raise Refusal(400, f"unknown operation {key}")

    def resolve(self, name: str, revision: str, path: str) -> None:
        at = self._at(self._repo(name), revision)
        headers = {"X_Repo_Commit": at.oid}
        if path not in at.tree:
            message = {"X_Error_Code": "EntryNotFound", "X_Error_Message": "Entry not found"}
            self._send(404, {"error": "Entry not found"}, **headers, **message)
            return
        data = at.tree[path]
        oid = hashlib.sha256(data).hexdigest() if _is_large(path) else git_oid(data)
        headers |= {"ETag": f'"{oid}"', "Accept_Ranges": "bytes", "X_Linked_Size": str(len(data))}
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if wanted:
            start, stop = int(wanted[1]), int(wanted[2] or len(data) - 1) + 1
            headers["Content_Range"] = f"bytes {start}-{min(stop, len(data)) - 1}/{len(data)}"
            self._send(206, data=data[start:stop], **headers)
        else:
            self._send(200, data=data, **headers)


_NAME, _REV = r"([\w.-]+/[\w.-]+)", r"([^/]+|refs/[^/]+/[^/]+)"
_API = rf"/api/datasets/{_NAME}"
ROUTES: list[tuple[tuple[str, ...], str, Callable[..., None]]] = [
    (("GET",), r"/api/whoami-v2", Handler.whoami),
    (("POST",), r"/api/repos/create", Handler.create),
    (("DELETE",), r"/api/repos/delete", Handler.delete),
    (("POST",), r"/api/validate-yaml", Handler.validate),
    (("GET",), _API, Handler.info),
    (("GET",), rf"{_API}/revision/{_REV}", Handler.info),
    (("GET",), rf"{_API}/tree/{_REV}", Handler.tree),
    (("GET",), rf"{_API}/tree/{_REV}/(.+)", Handler.tree),
    (("POST",), rf"{_API}/paths-info/{_REV}", Handler.paths_info),
    (("GET",), rf"{_API}/refs", Handler.refs),
    (("POST",), rf"{_API}/branch/(.+)", Handler.make_branch),
    (("DELETE",), rf"{_API}/branch/(.+)", Handler.delete_branch),
    (("GET",), rf"{_API}/commits/(.+)", Handler.commits),
    (("POST",), rf"{_API}/preupload/(.+)", Handler.preupload),
    (("POST",), rf"/datasets/{_NAME}\.git/info/lfs/objects/batch", Handler.batch),
    (("PUT",), r"/lfs/(\w+)", Handler.upload),
    (("POST",), r"/lfs/(\w+)/verify", Handler.verify),
    (("POST",), rf"{_API}/commit/(.+)", Handler.add_commit),
    (("GET", "HEAD"), rf"/datasets/{_NAME}/resolve/{_REV}/(.+)", Handler.resolve),
]
