"""Reconcile what a job asks for with what there is: stops, updates, placements wanted; no node is chosen here."""
