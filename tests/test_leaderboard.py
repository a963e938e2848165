"""The leaderboard: entries are run from outside, scored from outside, and run again."""

import json
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import TOY_CONFIG

from transformer_lib import cli
from transformer_lib.data.corpora import Splits, TestSet
from transformer_lib.errors import UserError
from transformer_lib.leaderboard import entries, running
from transformer_lib.leaderboard.entries import SeedResult, Track, entries_in, read_entry
from transformer_lib.leaderboard.reference import reference_step
from transformer_lib.leaderboard.running import (
    Verification,
    VerifiedSeed,
    run_seed,
    text_of,
    verify,
)
from transformer_lib.leaderboard.table import rows_of, tables

SENTENCES = [f"the cat number {n} sees a dog and a bird" for n in range(20)]
REFERENCES = [f"die Katze Nummer {n} sieht einen Hund und einen Vogel" for n in range(20)]
# Says the right thing for the first sentences; the program is not to know it, but knows it here.
SAYING = """
    import argparse, pathlib
    parser = argparse.ArgumentParser()
    for option in ("seed", "seconds", "text", "out"):
        parser.add_argument("--" + option)
    given = parser.parse_args()
    text = pathlib.Path(given.text)
    assert sorted(p.name for p in text.iterdir()) == [
        "test.en", "train.de", "train.en", "valid.de", "valid.en"]
    lines = (text / "test.en").read_text().splitlines()
    right = [f"die Katze Nummer {n} sieht einen Hund und einen Vogel" for n in range(20)]
    said = right[:RIGHT] + ["ich weiß es nicht"] * (len(lines) - RIGHT)
    pathlib.Path(given.out).write_text("".join(line + "\\n" for line in said))
    print("seed", given.seed)
"""


@pytest.fixture
def small(monkeypatch, toy_files):
    def read(name):
        return (toy_files / name).read_text(encoding="utf-8").splitlines()

    test = TestSet("test", SENTENCES, [[line] for line in REFERENCES])
    valid = TestSet("valid", read("valid.en"), [[line] for line in read("valid.de")])
    pairs = list(zip(read("train.en"), read("train.de"), strict=True))
    pairs += [(SENTENCES[0], REFERENCES[0])]  # must not reach an entry
    monkeypatch.setattr(entries, "load_corpus", lambda *_: Splits(pairs, valid, test))
    monkeypatch.setattr(running, "reference_step", lambda: 0.01)
    monkeypatch.setitem(entries.TRACKS, "multi30k-3min", Track("multi30k", 400))
    monkeypatch.setattr(running, "EXTRA_SECONDS", 60.0)
    return monkeypatch


def entry_in(folder, name, program=None, config=None, track="multi30k-3min"):
    made = folder / name
    made.mkdir(parents=True)
    about = f'track = "{track}"\nauthor = "A. Student"\nabout = "{name} alone"\n'
    (made / "entry.toml").write_text(about)
    if program is not None:
        (made / "program.py").write_text(textwrap.dedent(program))
    if config is not None:
        (made / "config.toml").write_text(config)
    return made


def saying(right):
    return SAYING.replace("RIGHT", str(right))


def typed(monkeypatch, capsys, *words):
    monkeypatch.setattr(sys, "argv", ["transformer-lib", "leaderboard", *map(str, words)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return end.value.code, *capsys.readouterr()


def test_an_entry_is_run_verified_and_ranked(small, tmp_path, capsys):
    for name, right in (("half", 10), ("most", 18), ("few", 9)):
        folder = entry_in(tmp_path, name, saying(right))
        assert typed(small, capsys, "run", folder)[0] == 0
        results = json.loads((folder / "result.json").read_text())
        assert [one["seed"] for one in results] == [1, 2, 3]
        assert (folder / "log.txt").read_text().split() == ["seed", "1", "seed", "2", "seed", "3"]
        assert len((folder / "outputs" / "2.txt").read_text().splitlines()) == 20
    code, out, _ = typed(small, capsys, "verify", tmp_path / "most")
    assert code == 0
    assert out.splitlines()[-1].startswith("holds: ")
    (made,) = tables(entries_in(tmp_path))
    assert made.startswith(
        "## multi30k-3min\n\nMulti30k, 20 test sentences, one reference, 400 ref"
    )
    assert [line.split("`")[1] for line in made.splitlines() if "alone" in line] == [
        "most", "half", "few"
    ]  # fmt: skip
    test = TestSet("test", SENTENCES, [[line] for line in REFERENCES])
    first, second, third = rows_of(entries_in(tmp_path), test)
    assert first.p is None
    assert second.p < 0.05, "eight of twenty sentences better, in three seeds"
    assert third.p > second.p
    unfinished = entry_in(tmp_path, "unfinished", saying(20))
    typed(small, capsys, "run", unfinished, "--seed", "2")
    entry_in(tmp_path, "new", saying(20))
    _, out, said = typed(small, capsys, "table", tmp_path)
    assert out == made + "\n"
    assert [line.split("/")[-1] for line in said.splitlines()] == [
        "new, which was not run with every seed", "unfinished, which was not run with every seed"
    ]  # fmt: skip


def test_a_machine_that_changes_its_speed_is_said(small, tmp_path, capsys):
    folder = entry_in(tmp_path, "half", saying(10))
    times = iter([0.01, 0.0105, 0.01, 0.02])
    small.setattr(running, "reference_step", lambda: next(times))
    _, out, _ = typed(small, capsys, "run", folder, "--seed", "1", "--seed", "2")
    assert [("run this seed again" in line) for line in out.splitlines()] == [False, True]


def test_an_experiment_is_an_entry_too(small, tmp_path):
    config = TOY_CONFIG.replace("steps = 40\n", "minutes = 1.0\n")
    config = config[config.index("[model]") :].replace("precision", "device = 'cpu'\nprecision")
    folder = entry_in(tmp_path, "toy", config="[data]\nvocab_size = 60\n" + config)
    entry = read_entry(folder)
    with text_of(entry.track) as (text, test):
        assert SENTENCES[0] not in (text / "train.en").read_text()
        done, translations = run_seed(entry, 2, text, test)
    assert done.seed == 2
    assert done.seconds > 4.0, "400 reference steps of 10 ms, and then some"
    assert len(translations) == 20
    assert "trained" in (folder / "log.txt").read_text() or translations


def test_what_fails_is_one_line_and_leaves_nothing_running(small, tmp_path):
    small.setattr(running, "EXTRA_SECONDS", 1.0)
    cases = {
        "slow": ("import time\ntime.sleep(60)", r"took longer than \d+ s"),
        "broken": ("raise SystemExit(3)", "ended with 3"),
        "silent": ("pass", "0 translations of 20 sentences"),
        "a pipe": ("import os, sys\nos.mkfifo(sys.argv[-1])", "0 translations of 20 sentences"),
    }
    for name, (program, says) in cases.items():
        entry = read_entry(entry_in(tmp_path, name, program))
        with text_of(entry.track) as (text, test), pytest.raises(UserError, match=says):
            run_seed(entry, 1, text, test)
        assert not (entry.folder / "result.json").exists()


def test_each_seed_is_told_when_it_was_run_again(small, tmp_path, capsys):
    folder = entry_in(tmp_path, "half", saying(10))
    typed(small, capsys, "run", folder)
    (folder / "program.py").write_text(
        textwrap.dedent(saying(10)) + "\nif given.seed == '2': raise SystemExit(3)"
    )
    small.setattr(sys, "argv", ["transformer-lib", "leaderboard", "verify", str(folder)])
    with pytest.raises(SystemExit):
        cli.main()
    out, said = capsys.readouterr()
    told = [line.split(":")[0].split() for line in out.splitlines()]
    assert told == [["claimed", "seed", "1"], ["again", "seed", "1"]]
    assert "ended with 3" in said


def test_a_claim_that_its_translations_do_not_bear_out_is_refused(small, tmp_path, capsys):
    folder = entry_in(tmp_path, "boast", saying(10))
    typed(small, capsys, "run", folder)
    path = folder / "result.json"
    right = path.read_text()
    values = json.loads(right)
    values[0]["bleu"] += 5.0
    path.write_text(json.dumps(values))
    with pytest.raises(UserError, match=r"boast claims .* for seed 1, but its outputs/1.txt has"):
        next(verify(read_entry(folder)))
    path.write_text(right)
    (folder / "program.py").write_text(textwrap.dedent(saying(5)))  # not what was run
    code, out, _ = typed(small, capsys, "verify", folder)
    assert code == 1
    assert out.splitlines()[-1].startswith("does not hold: ")


def test_entries_of_one_name_and_more_seeds_than_needed(small, tmp_path):
    """Two people's entries may have the same name; a | in what they say breaks no table."""
    for person, right in (("alice", 20), ("bob", 5)):
        folder = entry_in(tmp_path / person, "mine", saying(right))
        about = folder / "entry.toml"
        about.write_text(about.read_text().replace("mine alone", f"{person} | alone"))
        with text_of(read_entry(folder).track) as (text, test):
            for seed in (*entries.SEEDS, 7):
                read_entry(folder).write(*run_seed(read_entry(folder), seed, text, test))
    found = entries_in(tmp_path)
    assert all(entry.is_complete for entry in found)
    first, second = rows_of(found, entries.load_corpus().test)
    assert first.scores == [pytest.approx(100.0)] * 3
    assert max(second.scores) < 50
    assert second.p < 0.05
    assert r"alice \| alone |" in next(tables(found))
    about.write_text(about.read_text().replace("bob", "<b>[x](y)\\u001b"))
    assert r"&lt;b&gt;\[x\](y)\\x1b" in next(tables(entries_in(tmp_path)))


def test_a_program_that_hands_in_its_stored_translations_does_not_hold(small, tmp_path, capsys):
    folder = entry_in(tmp_path, "mine", saying(18))
    assert typed(small, capsys, "run", folder)[0] == 0
    again = """
        import pathlib, shutil, sys
        seed, out = (sys.argv[sys.argv.index(f"--{name}") + 1] for name in ("seed", "out"))
        shutil.copy(pathlib.Path(__file__).parent / "outputs" / f"{seed}.txt", out)
        """
    (folder / "program.py").write_text(textwrap.dedent(again))
    code, _, said = typed(small, capsys, "verify", folder)
    assert (code, f"{folder / 'log.txt'} says why" in said) == (2, True)
    assert "No such file" in (folder / "log.txt").read_text()
    by_its_output = again.replace("__file__", "os.readlink('/proc/self/fd/1')")
    (folder / "program.py").write_text(
        textwrap.dedent(by_its_output.replace("pathlib,", "os, pathlib,"))
    )
    assert typed(small, capsys, "verify", folder)[0] == 2


def test_who_takes_far_less_time_than_claimed_is_worth_a_look():
    claimed = SeedResult(1, 50.0, 100.0, (40.0, 60.0))
    slow, fast = (replace(claimed, seconds=s, reference_ms=(100.0, 100.0)) for s in (101.0, 99.0))
    assert not VerifiedSeed(claimed, slow).is_hurried  # on a machine that is half as fast
    assert VerifiedSeed(claimed, fast).is_hurried


def test_what_is_no_entry_is_one_line(tmp_path):
    with pytest.raises(UserError, match=r"it has no entry\.toml"):
        read_entry(tmp_path)
    with pytest.raises(UserError, match=r"has no entries: there is no entry\.toml in it"):
        entries_in(tmp_path / "nowhere")
    with pytest.raises(UserError, match="there is no track multi30k-4min; did you mean multi30k-"):
        read_entry(entry_in(tmp_path, "a", "pass", track="multi30k-4min"))
    with pytest.raises(UserError, match=r"needs one of config\.toml and program\.py, and has 2"):
        read_entry(entry_in(tmp_path, "b", "pass", ""))
    folder = entry_in(tmp_path, "c", "pass")
    with pytest.raises(UserError, match="has no result yet: transformer-lib leaderboard run"):
        read_entry(folder).results()
    (folder / "result.json").write_text('[{"seed": 1}]')
    with pytest.raises(UserError, match=r"result\.json: 0\.bleu: field required"):
        read_entry(folder).results()
    wrong = (("bleu", -1), ("bleu", "NaN"), ("seconds", 0), ("reference_ms", [0, 60]))
    for name, value in wrong:
        one = {"seed": 1, "bleu": 30.0, "seconds": 100.0, "reference_ms": [60, 60], name: value}
        (folder / "result.json").write_text(json.dumps([one]).replace('"NaN"', "NaN"))
        with pytest.raises(UserError, match=rf"result\.json: 0\.{name}"):
            read_entry(folder).results()
    (folder / "result.json").write_text("[")
    with pytest.raises(UserError, match=r"result\.json: invalid JSON"):
        read_entry(folder).results()
    (folder / "entry.toml").write_text("track = 3")
    with pytest.raises(UserError, match=r"entry\.toml: track"):
        read_entry(folder)


def test_the_table_in_the_readme_is_that_of_the_entries():
    """Of the corpus that comes with the library."""
    folder = Path(__file__).parent.parent / "leaderboard"
    own = [entry for entry in entries_in(folder) if entry.track.corpus == "tatoeba"]
    assert own
    assert next(tables(own)) in (folder / "README.md").read_text(encoding="utf-8")


def test_a_text_that_cannot_be_had_costs_none_of_the_tables_before_it(
    monkeypatch, tmp_path, capsys
):
    folder = Path(__file__).parent.parent / "leaderboard"
    code, out, said = typed(monkeypatch, capsys, "table", folder, "--from", tmp_path)
    assert (code, out.splitlines()[0]) == (2, "## tatoeba-3min")
    assert "multi30k" not in out
    assert f"cannot read {tmp_path}" in said


def test_the_readme_has_the_score_of_every_entry():
    folder = Path(__file__).parent.parent / "leaderboard"
    text = (folder / "README.md").read_text(encoding="utf-8")
    for entry in entries_in(folder):
        results = entry.results()
        assert [one.seed for one in results] == list(entries.SEEDS)
        each = ", ".join(f"{one.bleu:.1f}" for one in results)
        score = sum(one.bleu for one in results) / len(results)
        assert f"| `{entry.name}` | **{score:.1f}** | {each} |" in text


def test_the_reference_step_is_a_time():
    assert 0.0 < reference_step() < 10.0


def test_files_for_one_track_do_not_disturb_the_others(tmp_path):
    assert len(entries.TRACKS["tatoeba-3min"].splits(tmp_path).test) == 1000
    with pytest.raises(UserError, match="there is no folder"):
        entries.TRACKS["multi30k-3min"].splits(tmp_path / "nowhere")


def test_what_an_entry_leaves_behind_goes_with_it(tmp_path, small):
    """A process, and what it has in the folder for temporary files; a link is no translation."""
    late, where = tmp_path / "late", tmp_path / "where"
    child = f"import subprocess\nsubprocess.Popen(['sh', '-c', 'sleep 2; touch {late}'])"
    link = "import os, sys\nplace = sys.argv.index('--text') + 1\n"
    link += "os.symlink(sys.argv[place] + '/test.en', sys.argv[-1])"
    file = "import tempfile\ntempfile.mkstemp(prefix='entry')\n"
    file += f"open({str(where)!r}, 'w').write(tempfile.gettempdir())"
    for name, program in {"a child": child, "a link": link, "a file": file}.items():
        entry = read_entry(entry_in(tmp_path, name, program))
        with text_of(entry.track) as (text, test), pytest.raises(UserError, match="0 translations"):
            run_seed(entry, 1, text, test)
    assert not Path(where.read_text()).exists()
    time.sleep(2.5)
    assert not late.exists()


@pytest.mark.parametrize(("again", "holds"), [(29.0, True), (28.9, False), (35.0, True)])
def test_a_claim_holds_within_one_point(again, holds):
    one = VerifiedSeed(SeedResult(1, 30.0, 1.0, (1.0, 1.0)), SeedResult(1, again, 1.0, (1.0, 1.0)))
    assert Verification([one]).holds is holds
