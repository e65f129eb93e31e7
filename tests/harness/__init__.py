"""What the end-to-end tests share: servers to test against, clients to test with, requests signed by hand."""
