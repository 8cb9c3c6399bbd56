"""Hidden files of systems and tools that have an image's suffix."""

HIDDEN_FILES = (
    "@eaDir/photo.jpg/SYNOFILE_THUMB_M.jpg",
    "#recycle/deleted.jpg",
    "@Recycle/deleted.jpg",
    ".@__thumb/s100photo.jpg",
    ".ipynb_checkpoints/photo-checkpoint.png",
    ".Trash-1000/files/deleted.jpg",
    "$RECYCLE.BIN/S-1-5-21/$RABC.jpg",
    "lost+found/#1234.png",
    "__MACOSX/warm/._photo.jpg",
    "._photo.jpg",
    ".hidden.JPG",
    ".snapshot/daily/photo.jpg",
)
