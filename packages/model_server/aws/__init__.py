"""The embedded lane's cloud: a fake AWS on the loopback, and an inference container as SageMaker hosts them."""
