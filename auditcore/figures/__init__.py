"""DataFrames in, plotly figures out: pure functions, one file per page. No streamlit, no torch."""
