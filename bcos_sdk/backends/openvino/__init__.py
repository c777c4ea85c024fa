"""OpenVINO: the ONNX graphs of a bundle on the CPU, compiled for it."""
