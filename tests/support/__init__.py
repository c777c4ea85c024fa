"""What several tests need: the reference package, calibrated weights, and W(x) by autograd."""
