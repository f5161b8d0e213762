"""Documents that the program can check: they say what it does."""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_parameters_are_those_of_the_program(skiff):
    """Run tools/make_parameters.sh after changing a flag."""
    table = skiff.ok("help", "--markdown")
    assert (ROOT / "docs/parameters.md").read_text().endswith(table)


def test_chinese_parameters_name_every_applied_flag(skiff):
    table = skiff.ok("help", "--markdown").split("## Known, not implemented yet")[0]
    chinese = (ROOT / "docs/zh/parameters.md").read_text()
    missing = [f for f in re.findall(r"^\| `(--[a-z-]+)`", table, re.M) if f"`{f}`" not in chinese]
    assert not missing


def test_chinese_readme_has_every_row_and_every_page():
    english, chinese = ((ROOT / name).read_text() for name in ("README.md", "README.zh.md"))
    rows = [len(re.findall(r"^\| \S", page.split("|---|---|---|")[1], re.M))
            for page in (english, chinese)]
    assert rows[0] == rows[1]
    pages = [set(re.findall(r"\]\(((?:docs|deploy)/\w+\.md)", page)) for page in (english, chinese)]
    assert pages[0] - pages[1] <= {"docs/parameters.md"}  # there is a Chinese one


def test_links_lead_somewhere():
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "models/demo/README.md"]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)}: {target}"
