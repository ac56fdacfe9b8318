"""The server: propose and apply, workers, plan applier, leader duties' loops."""
