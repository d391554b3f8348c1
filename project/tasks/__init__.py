"""Your own models and data. What is defined here may be named in a configuration as `_target_`."""

# What else a configuration may call, such as "my_lab.models.*" or "my_lab.data.load". A configuration cannot add to it.
ALLOW: tuple[str, ...] = ()
