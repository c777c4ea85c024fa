"""From a torch module to deployable graphs."""
