"""The functions of the language, by family; `registry` knows their names and parameters and loads a family when it is
first called.
"""
