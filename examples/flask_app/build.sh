#!/usr/bin/env bash
# Read a text from standard input and write its words, numbered, to words.txt.
set -euf

echo "reading"
number=0
: >words.txt
while read -r line || [ -n "$line" ]; do
  for word in $line; do
    number=$((number + 1))
    echo "$number $word" >>words.txt
  done
  echo "  $number words so far"
done

if [ "$number" -eq 0 ]; then
  echo "there is no word in it" >&2
  exit 3
fi
echo "wrote words.txt"
