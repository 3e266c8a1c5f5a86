"""The version of this release, for the package's metadata, the command line and the server."""

VERSION = "0.1.0"
