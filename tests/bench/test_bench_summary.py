"""The short table of the README: twelve rows of records, and nothing measured."""

import json

from places import ROOT

from replay_tutorial.bench import command
from replay_tutorial.bench.one_process import inputs, operations, pictures, summary
from replay_tutorial.bench.run_all import SHORT, table_of

MEASUREMENTS = ROOT / "docs" / "measurements"
RECORDS = [MEASUREMENTS / f"{name}.json" for name in SHORT]


def write(records, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- bench-short:begin -->\nold\n<!-- bench-short:end -->\n")
    assert command.main(["summary", *map(str, records), "--markdown", str(page)]) == 0
    return table_of(summary.MARK, page)


def test_the_rows_are_twelve_of_those_that_are_measured():
    assert len(summary.ROWS) == 12
    cases = [*operations.all_cases(), *inputs.cases(), *pictures.cases()]
    assert set(summary.ROWS) <= {case.operation for case in cases}


def test_the_readme_shows_what_the_record_says(tmp_path):
    table = write(RECORDS, tmp_path)
    assert table_of(summary.MARK, ROOT / "README.md") == table
    rows = [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines() if line.startswith("| ")]
    assert rows[2:] == list(summary.ROWS), "below the head and its rule"


def test_without_cpprb_its_cells_are_empty(tmp_path):
    record = json.loads(RECORDS[0].read_text(encoding="utf-8"))
    for row in record["rows"]:
        del row["microseconds"]["cpprb"], row["ratios"]["cpprb"]
    path = tmp_path / "record.json"
    path.write_text(json.dumps(record))
    assert "| add 1, uniform | 2.04 |  |  | 42% |" in write([path], tmp_path)
