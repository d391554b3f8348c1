"""Makes projects from this repository; no project has it itself."""
