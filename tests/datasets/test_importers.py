"""Importers: each form a corpus comes in gives the same rows; nothing is fetched; the file tells where it is from."""

import json

import pandas as pd
import pytest

from auditcore.datasets import corpora, importers
from auditcore.datasets.corpora import CORPORA, articles, files_of, read_documents, unescaped
from auditcore.datasets.roles import load_dataset
from auditcore.datasets.sequences import Document
from auditcore.errors import DatasetError, SpecError
from auditcore.spec import CORPORA as NAMES
from auditcore.spec import parse_data

NEWS = [(str(1 + k % 4), f"Title {k}", f"news of day {k}, told twice over") for k in range(40)]


def data(path, name="ag_news", **how):
    rows = {k: how.pop(k) for k in ("max_rows", "format") if k in how}
    return parse_data({"path": str(path), "corpus": {"name": name, "length": 8, **how}, **rows})


def texts(path, name="ag_news", **options) -> list[str]:
    return [d.text for d in read_documents(name, files_of(str(path), options.pop("split", None)), **options).documents]


def news(folder, form: str):
    frame = pd.DataFrame(NEWS, columns=["Class Index", "Title", "Description"])
    path = folder / f"news.{form.removeprefix('bare.')}"
    if form == "csv":
        frame.to_csv(path, index=False)
    elif form == "bare.csv":
        frame.to_csv(path, index=False, header=False)
    elif form == "jsonl":
        frame.to_json(path, orient="records", lines=True)
    elif form == "parquet":
        pd.DataFrame({"text": frame["Title"] + " " + frame["Description"], "label": 0}).to_parquet(path)
    else:
        path.write_text("\n".join(frame["Title"] + " " + frame["Description"]))
    return path


def test_every_corpus_of_the_spec_can_be_read() -> None:
    assert set(CORPORA) == set(NAMES)


@pytest.mark.parametrize("form", ["csv", "bare.csv", "jsonl", "parquet", "txt"])
def test_ag_news_in_every_form_gives_the_same_documents(tmp_path, form) -> None:
    expected = [f"{title} {description}" for _, title, description in NEWS]
    path = news(tmp_path, form)
    assert texts(path) == expected
    assert texts(path, max_rows=3) == expected[:3]


def test_the_documents_of_the_other_corpora(tmp_path) -> None:
    pd.DataFrame({"document": ["one\ntwo"], "summary": ["s"], "id": ["77"]}).to_csv(tmp_path / "x.csv", index=False)
    assert read_documents("xsum", [tmp_path / "x.csv"]).documents == [Document("77", "one\ntwo")]
    (tmp_path / "c.jsonl").write_text(json.dumps({"repo": "r", "code": "def f():\n  pass\n"}) + "\n")
    assert texts(tmp_path / "c.jsonl", "code") == ["def f():\n  pass\n"]


def test_a_folder_of_source_files_is_a_corpus_of_code(tmp_path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "__init__.py").write_text("x = 1\n")
    (tmp_path / "__init__.py").write_text("y = 2\n")
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "latin.py").write_bytes(b"# \xe9\n")
    (tmp_path / "image.png").write_bytes(b"\x89PNG")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "z.py").write_text("z")
    read = read_documents("code", files_of(str(tmp_path), None))
    assert sorted(d.text for d in read.documents) == ["x = 1\n", "y = 2\n"]
    assert len({d.id for d in read.documents}) == 2
    assert read.notes == ["2 of 4 files are empty or not UTF-8 text and were left out."]
    with pytest.raises(DatasetError, match=r"latin.py: line 1 is not UTF-8"):
        read_documents("code", [tmp_path / "latin.py"])
    with pytest.raises(DatasetError, match="no data file"):
        files_of(str(tmp_path / ".hidden"), "train")


def test_a_folder_of_tables_is_read_in_order_and_by_split(tmp_path) -> None:
    for name, text in (("train-00001.parquet", "b"), ("train-00000.parquet", "a"), ("test-00000.parquet", "c")):
        pd.DataFrame({"text": [f"{text} {k}" for k in range(2)]}).to_parquet(tmp_path / name)
    assert texts(tmp_path, split="train") == ["a 0", "a 1", "b 0", "b 1"]
    assert texts(tmp_path) == ["c 0", "c 1", "a 0", "a 1", "b 0", "b 1"]
    assert texts(tmp_path, split="train", max_rows=3) == ["a 0", "a 1", "b 0"]


def test_wikitext_lines_become_articles(tmp_path) -> None:
    lines = ["", " = One = ", "", " first line", " = = Part = = ", " second", "", " = Two = ", "", "x = y", ""]
    (tmp_path / "wiki.tokens").write_text("\n".join(lines))
    pd.DataFrame({"text": [f"{line}\n" if line else "" for line in lines]}).to_parquet(tmp_path / "wiki.parquet")
    for name in ("wiki.tokens", "wiki.parquet"):
        found = [t for t in texts(tmp_path / name, "wikitext") if t.strip()]
        assert [" ".join(t.split()) for t in found] == [
            "= One = first line = = Part = = second",
            "= Two = x = y",
        ]


def test_wikitext_headings_are_first_level_after_a_blank_line() -> None:
    def split(*lines: str) -> int:
        return len(articles([Document(str(k), line) for k, line in enumerate(lines)])[0])

    assert split(" = A = ", "text", " = B = ", "text") == 2  # no blank lines at all
    assert split(" = A = ", "text", " = B = ", "", "text") == 1  # a formula: the line before is not blank
    assert split("text", "", " = = A = = ") == 3  # no article: every line for itself
    rows, found = articles([Document("1", "no heading")])
    assert not found
    assert len(rows) == 1


@pytest.mark.parametrize(
    ("raw", "meant"),
    [
        ("Japan #39;s index", "Japan's index"),
        ("for the  #36;10 million", "for the $10 million"),
        ("&lt;b&gt;x&lt;/b&gt; &amp; y", "<b>x</b> & y"),
        ("a  quot;b quot; c", 'a "b" c'),
        ("second\\team of \\$4.2", "second team of $4.2"),
        ("C#39;s and issue #39", "C#39;s and issue #39"),
    ],
)
def test_ag_news_can_be_cleaned(raw, meant) -> None:
    assert unescaped(raw) == meant


def test_cleaning_is_asked_for_and_counted(tmp_path) -> None:
    pd.DataFrame({"text": ["It #39;s", "plain"]}).to_csv(tmp_path / "n.csv", index=False)
    assert texts(tmp_path / "n.csv") == ["It #39;s", "plain"]
    read = read_documents("ag_news", [tmp_path / "n.csv"], clean=True)
    assert [d.text for d in read.documents] == ["It's", "plain"]
    assert read.notes == ["HTML entities or backslashes were undone in 1 of 2 texts."]


def test_rows_of_an_import(tmp_path) -> None:
    imported = importers.import_rows(data(news(tmp_path, "csv"), members=6, nonmembers=5, validation=2, seed=3))
    frame = imported.frame
    assert list(frame) == ["id", "text", "member", "group", "documents", "piece", "words"]
    assert frame["member"].value_counts(dropna=False).to_dict() == {True: 6, False: 5, pd.NA: 2}
    assert frame["id"].is_unique
    assert (frame["words"] == 8).all()
    assert (frame["text"].str.split().str.len() == 8).all()
    assert frame["member"].iloc[:6].nunique(dropna=False) > 1  # sides are mixed
    said = " ".join(imported.notes)
    assert "40 documents in news.csv" in said
    assert "6 members, 5 non-members, 2 of unknown membership" in said
    assert "words are in no sequence" in said
    assert "27 documents were not needed" in said  # one of nine words for each of 13 sequences


def test_the_same_text_has_the_same_id_in_another_import(tmp_path) -> None:
    path = news(tmp_path, "csv")
    one, two = (importers.import_rows(data(path, sequences="whole", seed=s)).frame for s in (1, 2))
    assert one["text"].tolist() != two["text"].tolist()
    assert dict(zip(one["text"], one["id"], strict=True)) == dict(zip(two["text"], two["id"], strict=True))


def test_the_file_tells_its_story_to_every_reader(tmp_path) -> None:
    imported = importers.import_rows(data(news(tmp_path, "csv")))
    out = tmp_path / "made" / "rows.parquet"
    importers.write_rows(imported, out)
    assert importers.import_notes(out) == imported.notes
    assert not list(out.parent.glob(".*"))
    dataset = load_dataset(parse_data({"path": str(out), "roles": importers.ROLES}), "{text}")
    assert dataset.notes[: len(imported.notes)] == imported.notes
    assert dataset.frame["member"].tolist() == imported.frame["member"].tolist()
    assert dataset.frame["group"].tolist() == imported.frame["group"].tolist()
    assert dataset.fields["text"] == imported.frame["text"].tolist()
    assert importers.import_notes(tmp_path / "news.csv") == []
    pd.DataFrame({"text": ["a"]}).to_parquet(tmp_path / "other.parquet")
    assert importers.import_notes(tmp_path / "other.parquet") == []


def test_rows_are_made_once_for_one_corpus_and_one_spec(tmp_path, monkeypatch) -> None:
    path = news(tmp_path, "csv")
    first = importers.rows_in(tmp_path / "cache", data(path, seed=1))
    written = (tmp_path / "cache").joinpath(first.path).read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(importers, "import_rows", None)  # not called again
        assert importers.rows_in(tmp_path / "cache", data(path, seed=1)) == first
    assert importers.rows_in(tmp_path / "cache", data(path, seed=2)).path != first.path
    (tmp_path / "cache").joinpath(first.path).unlink()
    assert importers.rows_in(tmp_path / "cache", data(path, seed=1)) == first
    assert (tmp_path / "cache").joinpath(first.path).read_bytes() == written  # the same bytes: a resumed run accepts it
    path.write_text(path.read_text().replace("news", "olds"))
    assert importers.rows_in(tmp_path / "cache", data(path, seed=1)).path != first.path
    plain = parse_data({"path": str(path), "roles": {"text": "Title"}})
    assert importers.rows_in(tmp_path / "cache", plain) is plain


def test_sequences_by_tokens_need_a_tokenizer_and_say_what_reads_otherwise(tmp_path) -> None:
    path = news(tmp_path, "csv")
    with pytest.raises(SpecError, match=r"corpus.unit: tokens needs a model"):
        importers.import_rows(data(path, unit="tokens"))

    def pairs(text: str) -> list[tuple[int, int]]:
        return [(k, min(k + 2, len(text))) for k in range(0, len(text), 2)]

    imported = importers.import_rows(data(path, unit="tokens", sequences="cut"), importers.Tokens(pairs, "pairs"))
    assert (imported.frame["text"].str.len() == 16).all()
    assert list(imported.frame)[-1] == "tokens"
    assert not any("read on their own" in note for note in imported.notes)

    def start_apart(text: str) -> list[tuple[int, int]]:  # a text's first character is a token of its own
        return [(0, 1), *[(k, min(k + 2, len(text))) for k in range(1, len(text), 2)]]

    again = importers.import_rows(data(path, unit="tokens", sequences="cut"), importers.Tokens(start_apart, "x"))
    assert any("read on their own have another number of tokens" in note for note in again.notes)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("hub:fancyzhu/ag_news", "is not on this machine, and nothing is fetched.*hf download fancyzhu/ag_news"),
        ("hub:ag_news", "write it as hub:owner/name"),
        ("hub:a/../../etc", "write it as hub:owner/name"),
        ("newz.csv", "no such file.* Did you mean 'news.csv'"),
    ],
)
def test_what_is_not_there_is_said_and_never_fetched(tmp_path, monkeypatch, path, message) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    news(tmp_path, "csv")
    monkeypatch.chdir(tmp_path)
    asked = []

    def refuse(repo, **options):
        asked.append(options["local_files_only"])
        raise FileNotFoundError(repo)

    monkeypatch.setattr(corpora, "_snapshot_download", lambda: refuse)
    with pytest.raises(DatasetError, match=f"(?s){message}"):
        importers.import_rows(data(path))
    assert all(asked)


def test_a_hub_id_is_read_from_its_cache_and_fetched_only_when_asked(tmp_path, monkeypatch) -> None:
    folder = tmp_path / "snapshot" / "wikitext-103"
    folder.mkdir(parents=True)
    pd.DataFrame({"text": [f"a b c {k}" for k in range(8)]}).to_parquet(folder / "train-0.parquet")
    calls = []

    def fetch(repo, **options):
        calls.append((repo, options["repo_type"], options["local_files_only"], options["allow_patterns"][0]))
        return str(tmp_path / "snapshot")

    monkeypatch.setattr(corpora, "_snapshot_download", lambda: fetch)
    spec = data("hub:Salesforce/wikitext/wikitext-103", "wikitext", sequences="whole", split="train")
    assert len(importers.import_rows(spec).frame) == 8
    importers.import_rows(spec, download=True)
    assert calls == [
        ("Salesforce/wikitext", "dataset", True, "wikitext-103/*.csv"),
        ("Salesforce/wikitext", "dataset", False, "wikitext-103/*.csv"),
    ]
    monkeypatch.setattr(corpora, "_snapshot_download", lambda: None)
    with pytest.raises(DatasetError, match="huggingface_hub, which reads hub ids, is not here"):
        importers.import_rows(spec)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"corpus": {"name": "agnews"}}, "Did you mean 'ag_news'"),
        ({"corpus": {"name": "code", "unit": "word"}}, "Did you mean 'words'"),
        ({"corpus": {"name": "code", "sequences": "join"}}, "Did you mean 'joined'"),
        ({"corpus": {"name": "code", "lenght": 3}}, "Did you mean 'length'"),
        ({"corpus": {"name": "code"}, "roles": {"text": "text"}}, "bring their roles"),
    ],
)
def test_a_wrong_corpus_is_said(raw, message) -> None:
    with pytest.raises(SpecError, match=message):
        parse_data({"path": "x.csv", **raw})


def test_a_table_without_the_corpus_columns_names_them(tmp_path) -> None:
    pd.DataFrame({"txt": ["a"]}).to_csv(tmp_path / "x.csv", index=False)
    with pytest.raises(DatasetError, match=r"XSum is read from the column 'document' or 'text'.* Known: txt"):
        importers.import_rows(data(tmp_path / "x.csv", "xsum"))
    with pytest.raises(DatasetError, match="title"):
        importers.import_rows(data(tmp_path / "x.csv"))


@pytest.mark.parametrize(
    "cause", ["HfHubHTTPError", "LocalEntryNotFoundError", "OfflineModeIsEnabled", "HFValidationError"]
)
def test_whatever_the_hub_client_raises_is_told_as_one_message(cause, monkeypatch) -> None:
    from huggingface_hub import errors

    kind = getattr(errors, cause)

    def refuse(*_args, **_options):
        raise kind.__new__(kind)  # as it is, without the response that some of them are made from

    monkeypatch.setattr(corpora, "_snapshot_download", lambda: refuse)
    with pytest.raises(DatasetError, match=f"(?s)could not be fetched \\({cause}\\)"):
        importers.import_rows(data("hub:owner/name"), download=True)
