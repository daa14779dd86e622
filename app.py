"""The dashboard: `streamlit run app.py`. In: run folders. Out: pages (see pages/_router.py)."""

import streamlit as st
from starlette.middleware import Middleware

# pandas, DuckDB and plotly are loaded while the server starts, not by the first visitor.
import auditcore.figures.overview
import auditcore.summary  # noqa: F401
from pages._server import RootAddress

# The router lies inside pages/ on purpose: a pages/ folder beside the entry script would switch on Streamlit's legacy
# multipage mode, in which a deep link draws a page without its frame.
app = st.App("pages/_router.py", middleware=[Middleware(RootAddress)])
