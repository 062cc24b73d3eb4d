"""The report: one HTML file that needs nothing else, neither a network nor another file.

`report` puts it together; `charts`, `tables` and `film` draw its parts; `markup` writes HTML that cannot be broken by
what it is given; `style.css` and `script.js` go into the file as they are.
"""
