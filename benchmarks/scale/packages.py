"""Debian packages whose documentation is the corpus of the builds, with the licence of each text.

The licences are a guide: `/usr/share/doc/PACKAGE/copyright` of each package decides. None of the texts is part of this
project: they are downloaded when a corpus is made.
"""

from __future__ import annotations

PACKAGES: dict[str, tuple[str, str]] = {  # package → (content, licence of the text)
    "anarchism": ("An Anarchist FAQ, a book of political history", "GFDL 1.1 or later, or GPL 2 or later"),
    "apache2-doc": ("manual of the Apache HTTP Server, several languages", "Apache 2.0"),
    "bind9-doc": ("BIND 9 Administrator Reference Manual", "MPL 2.0"),
    "clang-14-doc": ("manual of Clang", "Apache 2.0 with LLVM exceptions"),
    "cmake-doc": ("manual of CMake", "BSD 3-clause"),
    "debian-handbook": ("The Debian Administrator's Handbook, several languages", "CC BY-SA 3.0, or GPL 2 or later"),
    "debian-policy": ("Debian Policy Manual", "GPL 2 or later"),
    "debian-reference-en": ("Debian Reference", "GPL 2 or later"),
    "developers-reference": ("Debian Developer's Reference", "GPL 2 or later"),
    "dict-gcide": ("GNU Collaborative International Dictionary of English", "GPL 3 or later"),
    "erlang-doc": ("manual of Erlang/OTP", "Apache 2.0"),
    "exim4-doc-html": ("specification of Exim", "GPL 2 or later"),
    "gap-doc": ("manual of GAP", "GPL 2 or later"),
    "ghc-doc": ("manual and libraries of GHC", "BSD 3-clause"),
    "glibc-doc": ("manual pages of the GNU C Library", "GFDL 1.3, without invariant sections"),
    "gnome-user-docs": ("GNOME Help, several languages", "CC BY-SA 3.0"),
    "installation-guide-amd64": ("Debian Installation Guide, several languages", "GPL 2 or later"),
    "libboost1.74-doc": ("documentation of Boost", "Boost Software License 1.0"),
    "libgtk-4-doc": ("reference of GTK 4", "LGPL 2 or later"),
    "libreoffice-help-en-us": ("help of LibreOffice", "MPL 2.0"),
    "libstdc++-12-doc": ("manual of the GNU C++ Library", "GFDL 1.3 and GPL 3"),
    "linux-doc-6.1": ("documentation of the Linux kernel", "GPL 2"),
    "llvm-14-doc": ("manual of LLVM", "Apache 2.0 with LLVM exceptions"),
    "maint-guide": ("Debian New Maintainers' Guide", "GPL 2 or later"),
    "manpages": ("Linux man-pages", "free licences, a page each"),
    "manpages-dev": ("Linux man-pages, sections 2 and 3", "free licences, a page each"),
    "maxima-doc": ("manual of Maxima", "GPL 2 or later"),
    "nodejs-doc": ("manual of Node.js", "MIT"),
    "octave-doc": ("manual of GNU Octave", "GPL 3 or later"),
    "openjdk-17-doc": ("reference of OpenJDK 17", "GPL 2 with Classpath exception"),
    "perl-doc": ("manual of Perl", "Artistic, or GPL 1 or later"),
    "postfix-doc": ("manual of Postfix", "IBM Public License 1.0, or EPL 2.0"),
    "postgresql-doc-15": ("manual of PostgreSQL 15", "PostgreSQL License"),
    "python-django-doc": ("manual of Django", "BSD 3-clause"),
    "python-pandas-doc": ("manual of pandas", "BSD 3-clause"),
    "python-scipy-doc": ("manual of SciPy", "BSD 3-clause"),
    "python-sklearn-doc": ("manual of scikit-learn", "BSD 3-clause"),
    "python3.11-doc": ("manual of Python 3.11", "PSF License 2"),
    "qtbase5-doc-html": ("manual of Qt 5", "GFDL 1.3"),
    "r-doc-html": ("manuals of R", "GPL 2 or later"),
    "rust-doc": ("books and standard library of Rust", "MIT or Apache 2.0"),
    "sqlite3-doc": ("documentation of SQLite", "public domain"),
    "vim-doc": ("manual of Vim", "Vim License"),
    "zsh-doc": ("manual of Zsh", "MIT-like Zsh License"),
}
