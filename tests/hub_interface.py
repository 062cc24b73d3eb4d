"""The part of the stand-in for the hub that huggingface_hub asks about repositories, and uploads through.

An upload takes the way of the LFS protocol: preupload, batch, the storage, verify, commit. The binary protocol of the
hub's newer storage (xet) is not spoken here.
"""

import base64
import hashlib
import json
import re
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from hub_server import Hub

NAME = r"[^/]+/[^/]+"


class Interface(BaseHTTPRequestHandler):
    """Answers in JSON; what it knows is in `hub`."""

    hub: "Hub"

    def refuse(self, status: int, code: str, message: str = "") -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        if message:
            self.send_header("X-Error-Message", message)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def sees(self, repo: str) -> bool:
        """Whether the repository is there for whoever asks."""
        if self.hub.private.get(repo) and "Authorization" not in self.headers:
            return False
        return repo in self.hub.private or bool(self.hub.of(repo))

    def _tell(self, content: Any, status: int = 200) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answer_interface(self, path: str, body: bytes) -> None:
        """What huggingface_hub asks of the hub itself: repositories, their files, and the steps of an upload."""
        if path == "/api/validate-yaml":
            try:
                yaml.safe_load(json.loads(body)["content"].split("---")[1])
            except yaml.YAMLError as error:
                return self._tell({"errors": [{"message": str(error)}]}, 400)
            return self._tell({"errors": [], "warnings": []})
        writes = self.command == "POST"
        if writes and "Authorization" not in self.headers:
            return self.refuse(401, "", "Invalid username or password.")
        if path == "/api/repos/create":
            return self._create(json.loads(body))
        if found := re.fullmatch(r"/(.+)\.git/info/lfs/objects/(batch|verify)", path):
            return self._batch(json.loads(body)) if found[2] == "batch" else self._verify(json.loads(body))
        found = re.fullmatch(rf"/api/(models|datasets)/({NAME})(?:/(revision|tree|preupload|commit)/([^/]+))?", path)
        if not found:
            return self.refuse(404, "")
        repo = f"datasets/{found[2]}" if found[1] == "datasets" else found[2]
        if not self.sees(repo):
            return self.refuse(404 if "Authorization" in self.headers else 401, "RepoNotFound")
        files = self.hub.of(repo)
        if found[3] == "tree":
            entries = [
                {"type": "file", "path": name, "size": len(content), "oid": _git_hash(content), **_pointer(content)}
                for name, content in files.items()
            ]
            return self._tell(entries)
        if found[3] == "preupload":
            told = [
                {
                    "path": file["path"],
                    "uploadMode": "lfs" if file["path"].endswith(".safetensors") else "regular",
                    "shouldIgnore": False,
                    "oid": _remote(files, file["path"]),
                }
                for file in json.loads(body)["files"]
            ]
            return self._tell({"files": told})
        if found[3] == "commit":
            return self._commit(repo, body)
        siblings = [{"rfilename": name} for name in files]
        private = self.hub.private.get(repo, False)
        self._tell({"id": found[2], "sha": self.hub.commit_of(repo), "private": private, "siblings": siblings})

    def _create(self, asked: dict[str, Any]) -> None:
        name = f"{asked['organization']}/{asked['name']}"
        repo, new = (f"datasets/{name}" if asked.get("type") == "dataset" else name), False
        with self.hub.lock:
            new = repo not in self.hub.private and not self.hub.of(repo)
            self.hub.private.setdefault(repo, asked.get("visibility") == "private")
        self._tell({"url": f"{self.hub.url}/{repo}", "name": name}, 200 if new else 409)

    def _batch(self, asked: dict[str, Any]) -> None:
        objects = []
        for one in asked["objects"]:
            action = {"href": f"http://localhost:{self.hub.port}/upload/{one['oid']}"}
            verify = {"href": f"{self.hub.url}/someone/any.git/info/lfs/objects/verify"}
            there = one["oid"] in self.hub.stored
            objects.append(one if there else {**one, "actions": {"upload": action, "verify": verify}})
        self._tell({"transfer": "basic", "objects": objects})

    def _verify(self, asked: dict[str, Any]) -> None:
        whole = len(self.hub.stored.get(asked["oid"], b"")) == asked["size"]
        return self._tell({}) if whole else self.refuse(404, "", "the object is not whole")

    def store(self, oid: str) -> None:
        size = int(self.headers["Content-Length"])
        with self.hub.lock:
            end = min(size, self.hub.upload_cuts.pop(0)) if self.hub.upload_cuts else size
        content = self.rfile.read(end)
        self.hub.received[oid] += len(content)
        if end < size:
            self.close_connection = True
            self.connection.close()
            return
        if hashlib.sha256(content).hexdigest() != oid:
            return self.refuse(400, "", "the content is not what its name says")
        self.hub.stored[oid] = content
        self._tell({})

    def _commit(self, repo: str, body: bytes) -> None:
        """All of it or nothing."""
        files, message = self.hub.of(repo), ""
        for line in body.splitlines():
            key, value = (item := json.loads(line))["key"], item["value"]
            if key == "header":
                message = value["summary"]
            elif key == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif key == "lfsFile":
                if value["oid"] not in self.hub.stored:
                    return self.refuse(400, "", "a file of the commit was never uploaded")
                files[value["path"]] = self.hub.stored[value["oid"]]
            elif key == "deletedFile":
                del files[value["path"]]
        with self.hub.lock:
            for name in self.hub.of(repo):
                del self.hub.files[f"{repo}/{name}"]
            self.hub.files |= {f"{repo}/{name}": content for name, content in files.items()}
            self.hub.commits.append(message)
        commit = self.hub.commit_of(repo)
        self._tell({"commitUrl": f"{self.hub.url}/{repo}/commit/{commit}", "commitOid": commit})


def _git_hash(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _pointer(content: bytes) -> dict[str, Any]:
    """Here every file is answered from the storage, so every one has what the hub says of large files."""
    told = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
    return {"lfs": told}


def _remote(files: dict[str, bytes], path: str) -> str | None:
    """What the hub has under this path, as it says so before an upload: git's hash, or sha256 of a large file."""
    if path not in files:
        return None
    content = files[path]
    return hashlib.sha256(content).hexdigest() if path.endswith(".safetensors") else _git_hash(content)
