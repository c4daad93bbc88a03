# Refunds a payment: refund.sh PAYMENT AMOUNT. Exits 11 where nothing was asked of the provider yet.
case $2 in
    *[!0-9]*) echo "not an amount: $2" >&2; exit 11 ;;
esac
exec sh provider.sh "$CTRLRUN_IDEMPOTENCY_KEY" "$1" "$2"
