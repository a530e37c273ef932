"""The only package that imports `js` and `pyodide`: ports, sockets and values of the browser."""
