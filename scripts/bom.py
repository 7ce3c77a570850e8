"""Reads the output of `cargo metadata` and writes a CycloneDX document; see bom.sh."""

import json
import sys
import tomllib

ROOT = "hayward"


def main() -> None:
    said = json.load(sys.stdin)
    with open(sys.argv[1], "rb") as lock:
        locked = tomllib.load(lock)["package"]
    checksums = {(it["name"], it["version"]): it.get("checksum") for it in locked}
    packages = {it["id"]: it for it in said["packages"]}
    edges = {
        node["id"]: sorted(
            dep["pkg"]
            for dep in node["deps"]
            # Crates for building or testing are not in the program.
            if any(kind["kind"] is None for kind in dep["dep_kinds"])
        )
        for node in said["resolve"]["nodes"]
    }
    own = set(said["workspace_members"])
    root = next(it for it in own if packages[it]["name"] == ROOT)
    linked = reachable(root, edges)

    def purl(it: str) -> str:
        return f"pkg:cargo/{packages[it]['name']}@{packages[it]['version']}"

    def component(it: str) -> dict:
        package = packages[it]
        made = {
            "type": "library",
            "bom-ref": purl(it),
            "name": package["name"],
            "version": package["version"],
            "purl": purl(it),
        }
        if package.get("license"):
            # Old manifests write `/` for `OR`.
            expression = package["license"].replace("/", " OR ")
            made["licenses"] = [{"expression": expression}]
        checksum = checksums.get((package["name"], package["version"]))
        if checksum:
            made["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        return made

    others = sorted(linked - {root}, key=purl)
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": component(root) | {"type": "application"}},
        "components": [component(it) for it in others],
        "dependencies": [
            {"ref": purl(it), "dependsOn": sorted({purl(dep) for dep in edges[it]})}
            for it in [root, *others]
        ],
    }
    json.dump(document, sys.stdout, indent=1)
    print()


def reachable(root: str, edges: dict[str, list[str]]) -> set[str]:
    found, left = {root}, [root]
    while left:
        for dep in edges[left.pop()]:
            if dep not in found:
                found.add(dep)
                left.append(dep)
    return found


main()
