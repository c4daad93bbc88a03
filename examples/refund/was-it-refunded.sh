# Asks the provider for the request itself: a refund of the same payment may be somebody else's.
[ -d refunds ] || exit 1
if [ -e "refunds/$CTRLRUN_IDEMPOTENCY_KEY" ]; then echo committed; else echo not-executed; fi
