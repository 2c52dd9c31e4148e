# a folder that is missing, is none, or may not be used
export KILN_CACHE=disk
all() {
    for action in ls stats verify prune 'clear --yes'; do
        kiln cache $action 2>&1 | head -n 1 | sed "s|$HOME|HOME|; s|$TMP|TMP|"
    done
}
echo "-- missing"; all
ls -A $HOME
echo "-- others may write it"
mkdir -p $HOME/cache && chmod 777 $HOME/cache; all
chmod 700 $HOME/cache && mkdir -m 777 $HOME/cache/kernels; chmod 777 $HOME/cache/kernels; all
echo "-- a file"
rmdir $HOME/cache/kernels $HOME/cache; echo >$HOME/cache; all; rm $HOME/cache
echo "-- not configured"
(unset KILN_CACHE_DIR HOME; kiln cache ls 2>&1)
KILN_CACHE=memory kiln cache ls 2>&1
KILN_CACHE=off kiln cache ls 2>&1
KILN_CACHE=always kiln cache ls 2>&1
KILN_CACHE_SIZE=lots kiln cache ls 2>&1
echo "-- shared, without a key"
mkdir $HOME/cache && chmod 777 $HOME/cache
KILN_CACHE_SHARED=1 kiln cache ls 2>&1 | sed "s|$HOME|HOME|"
KILN_CACHE_SHARED=1 kiln doctor | grep '!'
echo "-- a key that others may read"
head -c 32 /dev/zero >$TMP/key; chmod 644 $TMP/key
KILN_KEY_FILE=$TMP/key kiln doctor | grep '! signing' | sed "s|$TMP|TMP|g"
