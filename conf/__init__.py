"""The configuration, a package so that an installed project finds it as pkg://project.conf."""
