#!/usr/bin/env bash
# Builds the Debian package from the wheels in a folder: packaging/deb/build.sh DIST
# UV names uv, PYTHON a Python that has this checkout's packages (for completion and manual pages).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dist=$(cd "$1" && pwd)
uv=${UV:-uv}
python=${PYTHON:-python3}
system_python=${SYSTEM_PYTHON:-/usr/bin/python3}

series=$("$system_python" -c 'import sys; print("{}.{}".format(*sys.version_info))')
next=$("$system_python" -c 'import sys; print("{}.{}".format(sys.version_info[0], sys.version_info[1] + 1))')
version=$(ls "$dist"/yurt-[0-9]*.whl | sed -n 's/.*yurt-\([0-9][^-]*\)-.*/\1/p' | sort -V | tail -1)
architecture=$(dpkg --print-architecture)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"

# A virtual environment that works where it is installed: nothing in it names the folder in which it was made.
home=$root/usr/lib/yurt
site=$home/lib/python$series/site-packages
mkdir -p "$home/bin" "$site"
printf 'home = /usr/bin\ninclude-system-site-packages = false\nversion = %s\n' "$series" > "$home/pyvenv.cfg"
ln -s "/usr/bin/python$series" "$home/bin/python3"
"$uv" pip install --quiet --python "$system_python" --target "$site" --no-compile-bytecode --link-mode copy "$dist"/yurt*-"$version"-*.whl
rm -rf "$site/bin"
# Type stubs are of no use to a package.
find "$site" -name '*.pyi' -delete
find "$site" -name __pycache__ -type d -prune -exec rm -rf {} +
"$uv" pip list --quiet --path "$site" --format freeze > "$home/packages.txt" 2>/dev/null || true

install -D -m 755 /dev/stdin "$root/usr/bin/yurt" <<'LAUNCHER'
#!/bin/sh
exec /usr/lib/yurt/bin/python3 -P -m yurt.cli.main "$@"
LAUNCHER
install -D -m 644 "$here/yurt.service" "$root/lib/systemd/system/yurt.service"
install -D -m 640 "$here/yurt.hcl" "$root/etc/yurt.d/yurt.hcl"
for file in alerts.yml grafana-dashboard.json; do
    install -D -m 644 "$here/../monitoring/$file" "$root/usr/share/yurt/monitoring/$file"
done
install -D -m 644 "$here/../../LICENSE" "$root/usr/share/doc/yurt/copyright"

(cd "$here/../.." && "$python" -m docs.manual_pages "$root/usr/share/man/man1" > /dev/null)
gzip -9n "$root"/usr/share/man/man1/*
"$python" "$here/completion.py" "$root"

mkdir -p "$root/DEBIAN"
echo /etc/yurt.d/yurt.hcl > "$root/DEBIAN/conffiles"
for script in postinst prerm postrm; do install -m 755 "$here/$script" "$root/DEBIAN/$script"; done
cat > "$root/DEBIAN/control" <<CONTROL
Package: yurt
Version: $version
Architecture: $architecture
Maintainer: The Yurt developers <yurt@localhost>
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f1)
Depends: python3 (>= $series), python3 (<< $next), adduser
Recommends: systemd
Suggests: docker.io, podman, runc, etcd-server, containernetworking-plugins, prometheus
Section: admin
Priority: optional
Description: workload orchestrator that speaks Nomad's API
 Yurt runs jobs on one machine or on many: containers, commands, Java and
 virtual machines. It speaks the HTTP API, the job files and the command line
 of HashiCorp Nomad.
CONTROL
package=$dist/yurt_${version}_${architecture}.deb
dpkg-deb --root-owner-group -Zzstd -z3 --build "$root" "$package" > /dev/null
echo "$package"
