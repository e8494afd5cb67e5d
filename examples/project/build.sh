#!/usr/bin/env bash
# Build dist/wordfreq-$VERSION.pyz, one file that python3 runs; MODE=release makes it smaller.
set -euo pipefail

compress=()
if [ "${MODE:-debug}" = release ]; then compress=(--compress); fi

echo "building wordfreq $VERSION (${MODE:-debug})"
rm -rf stage dist
mkdir -p stage dist
for source in wordfreq/*.py; do
  echo "  check $source"
  python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' "$source"
  sleep 0.2
done
cp -r wordfreq stage/
cp wordfreq/__main__.py stage/
python3 -m zipapp stage "${compress[@]}" --output "dist/wordfreq-$VERSION.pyz"
rm -rf stage
echo "  wrote dist/wordfreq-$VERSION.pyz"
