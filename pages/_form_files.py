"""Files in the form of a new audit: rows, vectors, labels. In: what is typed, chosen or uploaded. Out: paths, sets."""

import hashlib
from pathlib import Path
from typing import Any

import streamlit as st

from auditcore import words
from auditcore.errors import AuditError
from pages import _data as data
from pages import _ui as ui
from pages._uploads import in_user_names

_STAY: dict[str, Any] = {"persist_state": "session"}


def choose_data(kind: str) -> str:
    """Which file? A path on this machine, an earlier upload, or a new one."""
    bundled, small = data.bundled_data(), data.small_part()
    names = {
        str(bundled): "bundled: synthetic discharge notes",
        str(small): "bundled, a small part: minutes, not hours",
    }
    names |= data.uploads()
    options = [path for path in names if path != "None"]
    fresh = st.session_state.pop("_fresh_upload", None)
    if fresh in options:
        st.session_state["setup_data"] = fresh
    path = st.selectbox(
        "Rows",
        options,
        format_func=lambda p: names.get(p, p),
        accept_new_options=True,
        key="setup_data",
        placeholder="Type the path of a CSV, TSV, JSON Lines or Parquet file",
        help="Type a path on this machine, or upload a file below.",
        **_STAY,
    )
    _upload("CSV, TSV, JSON Lines or Parquet; the text forms may be gzipped")
    return str(path or "").strip()


def choose_vectors() -> dict[str, Any]:
    """The file of vectors, and which of the sets in it; what its header says is shown at once."""
    names = data.uploads(vectors=True)
    fresh = st.session_state.pop("_fresh_vectors", None)
    if fresh in names:
        st.session_state["setup_vector_path"] = fresh
    path = st.selectbox(
        "File of vectors",
        list(names),
        index=None,
        format_func=lambda p: names.get(p, p),
        accept_new_options=True,
        key="setup_vector_path",
        placeholder="Type the path of a .parquet, .npy or .safetensors file",
        help="Parquet: a column of lists. Type a path on this machine, or upload a file below.",
        **_STAY,
    )
    path = str(path or "").strip()
    _upload("Parquet with a column of lists, npy (never unpickled) or safetensors", vectors=True)
    if not path:
        return {"vectors": {"path": "", "column": None}}
    try:
        found = data.vector_sets(path)
    except AuditError as error:
        ui.notice("error", in_user_names(str(error)), "These vectors cannot be used.")
        return {"vectors": {"path": path, "column": None}}
    sizes = {
        one.name: f"{words.count(one.rows)} vectors{f' of {words.count(one.width)} numbers' if one.width else ''}, "
        f"{one.dtype}"
        for one in found
    }
    name = found[0].name
    if len(found) > 1:
        name = st.selectbox(
            "Column or tensor that holds them",
            list(sizes),
            format_func=lambda n: f"{n}: {sizes[n]}",
            key=f"setup_vector_column_{short(path)}",
            **_STAY,
        )
    ui.quiet(f"{sizes[name][:1].upper()}{sizes[name][1:]}." if name in sizes else "")
    return {"vectors": {"path": path, "column": name}}


def choose_labels(vectors: str) -> str:
    """Where do the labels of ready-made vectors lie? In their own Parquet file, or in another one, row by row."""
    own = [vectors] if Path(vectors).suffix.lower() == ".parquet" else []
    uploaded = data.uploads()
    names = {vectors: "the file of vectors itself", **uploaded}
    path = st.selectbox(
        "Rows with the labels",
        [*own, *uploaded],
        index=0 if own else None,
        format_func=lambda p: names.get(p, p),
        accept_new_options=True,
        key=f"setup_labels_{short(vectors)}",
        placeholder="Type the path of a CSV, TSV, JSON Lines or Parquet file",
        help="One row per vector, in the same order; or joined by the row id, when a Parquet file holds it too.",
        **_STAY,
    )
    return str(path or "").strip()


def _upload(label: str, vectors: bool = False) -> None:
    """A box for a new file of rows or of vectors; once it is kept, the page is drawn anew with it chosen."""
    what = "vectors" if vectors else "upload"
    with st.expander(f"Upload {'vectors' if vectors else 'a file'} (at most {data.UPLOAD_MB} MB)"):
        upload = st.file_uploader(
            label,
            type=data.VECTOR_TYPES if vectors else data.UPLOAD_TYPES,
            key="setup_upload_vectors" if vectors else "setup_upload",
            max_upload_size=data.UPLOAD_MB,
        )
        ui.quiet(
            "It is copied to the folder uploads beside your runs on this machine, readable by you alone, goes nowhere "
            "else, and stays there until you delete it."
        )
        if upload is not None and st.session_state.get(f"_kept_{what}") != upload.file_id:
            with ui.guard():
                st.session_state[f"_fresh_{what}"] = data.keep_upload(upload.name, upload.getvalue(), vectors)
            st.session_state[f"_kept_{what}"] = upload.file_id
            st.rerun()


def short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:10]
