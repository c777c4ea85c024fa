"""ONNX Runtime: the graphs of a bundle on the CPU or on a GPU through CUDA."""
