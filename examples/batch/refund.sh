# Refunds, but for txn_2 on its first day: that ends without a word.
if [ "$1" = txn_2 ] && [ ! -e fixed ]; then exit 28; fi
echo "$1 $2" >>refunds
