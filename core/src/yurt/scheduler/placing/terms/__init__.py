"""The terms of a node's score, one module each; `registry` lists them."""
