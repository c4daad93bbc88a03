# The first one to come holds on until it is let go.
echo begun >begun
read -r line <go
echo "synced"
