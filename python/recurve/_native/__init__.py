"""The shared library: finding it, its structs and functions, and its errors."""
