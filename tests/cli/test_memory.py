from __future__ import annotations

import json
from pathlib import Path

import pytest

THUMBS = """question,document,vote,user,date
How do I reset it?,account,up,ann,2026-03-01
How do I reset it?,account,up,bob,2026-03-02
How do I reset it?,billing,down,bob,2026-03-02
Opening hours?,contact,up,,2026-03-03
"""


@pytest.fixture
def memory(kinrank, workdir: Path) -> str:
    Path("thumbs.csv").write_text(THUMBS)
    done = kinrank("memory", "import", "memory.db", "thumbs.csv")
    assert done.exit_code == 0, done.stderr
    assert done.stdout == "4\n"
    assert "thumbs.csv: 4 votes; question from 'question', document from 'document'" in done.stderr
    return "memory.db"


def test_stats(kinrank, memory: str):
    shown = kinrank("memory", "stats", memory).stdout
    assert shown.splitlines()[:3] == ["questions          2", "documents          3", "people             2"]
    assert "2026-03-02      1         1" in shown
    found = json.loads(kinrank("memory", "stats", memory, "--json").stdout)
    assert found["votes"] == {"liked": 3, "disliked": 1}
    assert found["days"]["2026-03-01"] == {"liked": 1}


def test_list_and_show(kinrank, memory: str):
    listed = kinrank("memory", "list", memory).stdout.splitlines()
    assert listed[1].split(maxsplit=4) == ["1", "1", "0", "2026-03-03", "Opening hours?"]
    assert "reset" in kinrank("memory", "list", memory, "--containing", "RESET").stdout
    shown = kinrank("memory", "show", memory, "how do I reset it?").stdout
    assert shown == "account: liked 2 times\nbilling: disliked 1 time\n"
    missing = kinrank("memory", "show", memory, "what is the meaning of life?")
    assert missing.exit_code == 2
    assert "nothing is known for 'what is the meaning of life?': kinrank memory list" in missing.stderr


def test_export_import_and_forget(kinrank, memory: str):
    assert kinrank("memory", "export", memory, "votes.parquet").stdout == "4\n"
    assert kinrank("memory", "--tenant", "acme", "import", memory, "votes.parquet").exit_code == 0
    assert kinrank("memory", "import", memory, "thumbs.csv").exit_code == 0  # counts once
    assert json.loads(kinrank("memory", "stats", memory, "--json").stdout)["votes"]["liked"] == 3
    assert kinrank("memory", "forget", memory, "--user", "bob").stdout == "2\n"
    assert kinrank("memory", "forget", memory, "--before", "2026-03-02").stdout == "1\n"
    assert json.loads(kinrank("memory", "stats", memory, "--json").stdout)["questions"] == 1
    of_tenant = kinrank("memory", "--tenant", "acme", "stats", memory, "--json").stdout
    assert json.loads(of_tenant)["questions"] == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["stats", "nowhere.db"], "nowhere.db: no such file: pass the path that Memory(...) or kinrank serve"),
        (["import", "memory.db", "nowhere.csv"], "nowhere.csv: no such file: check the path"),
        (["import", "memory.db", "thumbs.csv", "--columns", "document"], "--columns takes NAME=COLUMN,..., such as"),
        (["forget", "memory.db"], "forget needs a user, a document, a question or a time"),
        (["forget", "memory.db", "--before", "May"], "--before takes a date, such as 2026-01-31, got 'May'"),
    ],
)
def test_errors(kinrank, memory: str, words: list[str], message: str):
    done = kinrank("memory", *words)
    assert done.exit_code == 2
    assert message in done.stderr


def test_why(kinrank, memory: str):
    told = kinrank("memory", "why", memory, "how can I reset it?", "--document", "account").stdout
    assert told.startswith("account: similar questions decide ")
    assert "*How do I reset it?* (letters ." in told


def test_replay(kinrank, workdir: Path):
    rows = [f"reset password {n},account,u{n},2026-03-{n + 1:02}" for n in range(25)]
    Path("log.csv").write_text("\n".join(["query,doc_id,client,date", *rows]))
    told = kinrank("memory", "replay", "log.csv")
    assert told.exit_code == 0, told.stderr
    assert told.stdout.startswith("25 searches with a right document, on 25 days. NDCG@10:\n  memory: .96")
    assert told.stdout.endswith("On this log, memory does not pay.\n")  # there is one document only
