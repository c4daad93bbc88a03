# A provider that deduplicates by an idempotency key, as a folder of files: provider.sh KEY PAYMENT AMOUNT.
# The file `lose-answer` makes it do its work and lose the answer, as a network does.
mkdir -p refunds
[ -e "refunds/$1" ] || echo "$2 $3" >"refunds/$1"
if [ -e lose-answer ]; then
    rm lose-answer
    echo "no answer within 30 s" >&2
    exit 28
fi
echo "refund of $2: $3"
