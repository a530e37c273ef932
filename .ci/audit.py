"""`make audit`: known problems in the dependencies, and a newer conformance suite. Asks PyPI and npm, over the network.

An audit that could not check a package reports it and fails: pip-audit alone would call that "no known
vulnerabilities". Standard library only; pip-audit has a separate environment, so that it does not audit itself.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / "build" / "audit"
PIP_AUDIT = "pip-audit==2.10.1"
SUITE = "@modelcontextprotocol/conformance"


def python_problems(report: Any) -> list[str]:
    """Problems in pip-audit's JSON; packages that it skipped are problems too."""
    packages = report.get("dependencies") if isinstance(report, dict) else None
    if not packages:
        return ["pip-audit looked at no package at all"]
    problems = []
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    if skipped:
        reason = next(package["skip_reason"] for package in packages if "skip_reason" in package)
        names = ", ".join(skipped[:5]) + (", …" if len(skipped) > 5 else "")
        problems.append(f"{len(skipped)} of {len(packages)} packages were skipped ({names}): {reason}")
    for package in packages:
        for found in package.get("vulns", ()):
            fix = f", mended in {', '.join(found['fix_versions'])}" if found.get("fix_versions") else ""
            problems.append(f"{package['name']} {package['version']}: {found['id']}{fix}")
    return problems


def node_problems(report: Any) -> list[str]:
    """Problems in npm's JSON."""
    if not isinstance(report, dict) or "auditReportVersion" not in report:
        error = report.get("error") if isinstance(report, dict) else None
        said = error.get("summary") or error.get("code") if isinstance(error, dict) else None
        message = report.get("message") if isinstance(report, dict) else None
        return [f"npm's advisories can't be asked: {said or message or 'no report'}"]
    if not report.get("metadata", {}).get("dependencies", {}).get("total"):
        return ["npm looked at no package at all"]
    return [f"{name}: {found.get('severity')}" for name, found in report.get("vulnerabilities", {}).items()]


def audit_python() -> list[str]:
    program = ENVIRONMENT / ("Scripts" if sys.platform == "win32" else "bin") / "pip-audit"
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", ENVIRONMENT], check=True)
        subprocess.run([program.with_name("python"), "-m", "pip", "install", "--quiet", PIP_AUDIT], check=True)
    # All pinned packages with their dependencies: nothing has to be resolved or installed.
    command = [program, "--requirement", ROOT / "constraints.txt", "--no-deps", "--disable-pip", "--format", "json"]
    return python_problems(output(command, ROOT))


def audit_node() -> list[str]:
    npm = shutil.which("npm")
    if npm is None:
        return ["there is no npm to ask"]
    # This tree has no lock file, because package.json pins everything: the audit makes one in another folder.
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(ROOT / "package.json", folder)
        lock = [npm, "install", "--package-lock-only", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
        if subprocess.run(lock, cwd=folder).returncode:
            return ["npm could not say what it would install"]
        return node_problems(output([npm, "audit", "--json"], Path(folder)))


def suite_problems(pinned: str, versions: Any) -> list[str]:
    """A release of the conformance suite that is newer than the pinned one, prereleases included."""
    if not isinstance(versions, list) or not versions:
        return [f"npm could not say which versions of {SUITE} there are"]
    newest = max(versions, key=version_key)
    return [f"{SUITE} {newest} is newer than {pinned}"] if version_key(newest) > version_key(pinned) else []


def version_key(version: str) -> tuple[Any, ...]:
    """Orders versions as npm does: a prerelease is before its release, and its numbers are compared as numbers."""
    release, _, prerelease = version.partition("-")
    parts = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in prerelease.split(".") if part)
    return tuple(int(number) for number in release.split(".")), not prerelease, parts


def audit_suite() -> list[str]:
    npm = shutil.which("npm")
    if npm is None:
        return ["there is no npm to ask"]
    pinned = json.loads((ROOT / "package.json").read_text())["devDependencies"][SUITE]
    return suite_problems(pinned, output([npm, "view", SUITE, "versions", "--json"], ROOT))


def output(command: list[Any], folder: Path) -> Any:
    """A program's JSON, whatever its exit code, which also reports problems."""
    done = subprocess.run([str(part) for part in command], cwd=folder, capture_output=True, text=True)
    try:
        return json.loads(done.stdout)
    except ValueError:
        print(done.stderr[-2000:], file=sys.stderr)
        return None


def main() -> int:
    failed = False
    for what, audit in (("Python", audit_python), ("npm", audit_node), ("conformance suite", audit_suite)):
        print(f"== {what}", flush=True)
        try:
            problems = audit()
        except (OSError, subprocess.SubprocessError) as error:
            problems = [f"the audit could not run: {error}"]
        for problem in problems:
            print(f"   {problem}")
        print("   fine" if not problems else "   FAILED")
        failed |= bool(problems)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
