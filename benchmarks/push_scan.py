"""What the scan before a push finds: in made-up secrets, and in sources as they are.

    python benchmarks/push_scan.py [--peer NAME] [SOURCE…]

A source is a file of dialogues. Each is read, exported whole without asking a model, and scanned as
`curate push` scans it. Prints counts by kind, and the CPU time of making and scanning the tables. With --peer
another detector of secrets reads the made-up secrets and every text of the files instead: `kingfisher` (its
own rules alone), `betterleaks`, `detect-secrets`, `detect-secrets-entropy`; each has to be installed.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import json
import random
import string
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from curate.publishing.push import PushOptions, prepare_push
from curate.publishing.scan import KINDS, Detector, texts
from curate.recipe import parse_recipe
from curate.run.pipeline import run_recipe

HEX, DIGITS, LETTERS = "0123456789abcdef", "123456789", string.ascii_letters
UPPER = string.ascii_uppercase
BASE32 = UPPER + "234567"


def made_up(seed: int = 7) -> dict[str, str]:
    """A secret in the form of each of 36 providers or habits."""
    drawn = random.Random(seed)

    def some(length: int, alphabet: str = LETTERS + string.digits) -> str:
        return "".join(drawn.choice(alphabet) for _ in range(length))

    def coded(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    claims = {"sub": "1234567890", "name": "J Doe", "iat": 1516239022}
    azure = base64.b64encode(bytes(drawn.randrange(256) for _ in range(64))).decode()
    pem = "\n".join(some(64) for _ in range(12))
    aws = f"AKIA{some(16, BASE32)}"
    return {
        "anthropic": f"sk-ant-api03-{some(93)}AA",
        "aws key id": f"AKIA{some(16, BASE32)}",
        "aws pair": f"AWS_ACCESS_KEY_ID={aws}\nAWS_SECRET_ACCESS_KEY={some(40)}",
        "azure": f"AccountKey={azure}",
        "databricks": f"dapi{some(32, HEX)}",
        "digitalocean": f"dop_v1_{some(64, HEX)}",
        "discord": f"M{some(23)}.{some(6)}.{some(27)}",
        "github": f"ghp_{some(36)}",
        "github, fine-grained": f"github_pat_{some(22)}_{some(59)}",
        "gitlab": f"glpat-{some(20)}",
        "google": f"AIza{some(35)}",
        "groq": f"gsk_{some(52)}",
        "heroku": f"HRKU-AA{some(58)}",
        "hugging face": f"hf_{some(34, LETTERS)}",
        "jwt": f"{coded({'alg': 'HS256', 'typ': 'JWT'})}.{coded(claims)}.{some(43)}",
        "mailchimp": f"{some(32, HEX)}-us12",
        "npm": f"npm_{some(36)}",
        "nvidia": f"nvapi-{some(64)}",
        "openai": f"sk-{some(20)}T3BlbkFJ{some(20)}",
        "openai, project": f"sk-proj-{some(74)}T3BlbkFJ{some(74)}",
        "openrouter": f"sk-or-v1-{some(64, HEX)}",
        "perplexity": f"pplx-{some(48)}",
        "private key": f"-----BEGIN RSA PRIVATE KEY-----\n{pem}\n-----END RSA PRIVATE KEY-----",
        "pypi": f"pypi-AgEIcHlwaS5vcmc{some(150)}",
        "replicate": f"r8_{some(37)}",
        "sendgrid": f"SG.{some(22)}.{some(43)}",
        "slack": f"xoxb-{some(12, DIGITS)}-{some(12, DIGITS)}-{some(24)}",
        "slack hook": f"https://hooks.slack.com/services/T{some(8, UPPER)}/B{some(8, UPPER)}/{some(24)}",
        "stripe": f"sk_live_{some(24)}",
        "telegram": f"{some(10, DIGITS)}:AA{some(33)}",
        "twilio": f"SK{some(32, HEX)}",
        "xai": f"xai-{some(80)}",
        "url of a database": f"postgres://admin:{some(16)}@db.acme-internal.net:5432/prod",
        "url with a password": f"https://bob:{some(14)}@git.acme-internal.net/x.git",
        "by its name": f'api_key: "{some(40, HEX)}"',
        "password in quotes": f'password = "{some(14)}!"',
    }


def scan_source(path: Path, folder: Path) -> None:
    """Print a line of the table in docs/publishing.md."""
    recipe = {
        "name": path.stem,
        "source": {"path": str(path), "license": "other"},
        "judge": False,
        "adherence": False,
        "select": {"where": {}, "active": None},
    }
    run_recipe(parse_recipe(recipe), out=folder)
    began = time.process_time()
    findings = prepare_push(folder, "me/scanned", PushOptions()).findings
    spent = time.process_time() - began
    counts: dict[str, int] = dict.fromkeys(KINDS, 0)
    for name, number in findings.counts.items():
        counts[name.partition(":")[0]] += number
    said = ", ".join(f"{kind} {number}" for kind, number in counts.items())
    print(f"{path.name}: {findings.rows} rows, {findings.texts} texts; {said}; {spent:.1f} s CPU")


def peer(name: str, opened: ExitStack) -> Callable[[str], int]:
    """How many secrets another detector finds in a text."""
    if name == "kingfisher":
        from kingfisher_sdk import Scanner

        scanner = Scanner()
        return lambda text: sum(found.visible for found in scanner.scan(text))
    if name == "betterleaks":
        import betterleaks

        return lambda text: len(betterleaks.scan_string(text))
    from detect_secrets.core.scan import scan_line
    from detect_secrets.settings import default_settings

    settings = opened.enter_context(default_settings())
    if name == "detect-secrets":
        settings.disable_plugins("Base64HighEntropyString", "HexHighEntropyString")
    return lambda text: sum(1 for line in text.splitlines() for _ in scan_line(line))


def count_in_file(path: Path, find: Callable[[str], int]) -> None:
    """Print what another detector finds in the texts of a JSON or JSON Lines file."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    is_lines = ".jsonl" in path.name
    rows = [json.loads(line) for line in data.splitlines()] if is_lines else json.loads(data)
    found = list(texts(rows))
    began = time.process_time()
    number = sum(map(find, found))
    print(f"{path.name}: {len(found)} texts; {number}; {time.process_time() - began:.1f} s CPU")


def main() -> None:
    """Made-up secrets, then each source."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer")
    parser.add_argument("sources", nargs="*", type=Path)
    options = parser.parse_args()
    with ExitStack() as opened:
        measure(options.sources, peer(options.peer, opened) if options.peer else None)


def measure(sources: Sequence[Path], other: Callable[[str], int] | None) -> None:
    """Print what is found by another detector, or by the scan of a push."""
    detector = Detector()
    find = other or (lambda text: _secrets_in(detector, text))
    secrets = made_up()
    sentences = {
        name: f"Here is mine:\n{secret}\nand it still fails." for name, secret in secrets.items()
    }
    missed = [name for name, sentence in sentences.items() if not find(sentence)]
    print(f"made-up secrets: found {len(secrets) - len(missed)} of {len(secrets)}; missed {missed}")
    for source in sources:
        if other is not None:
            count_in_file(source, find)
            continue
        with tempfile.TemporaryDirectory() as folder:
            scan_source(source, Path(folder) / "run")


def _secrets_in(detector: Detector, text: str) -> int:
    return sum(match.kind == "secret" for match in detector.find(text))


if __name__ == "__main__":
    main()
