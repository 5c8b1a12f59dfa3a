#!/bin/sh
# Numba writes to the folder that it reads compiled code from, and the file system of the image may be read-only.
[ -d "$NUMBA_CACHE_DIR" ] || cp -r /opt/kinrank/numba "$NUMBA_CACHE_DIR"
exec kinrank serve --host 0.0.0.0 --port 8080 "$@"
