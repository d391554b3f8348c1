"""The report of one run: a page that is made from what lies in its folder."""
