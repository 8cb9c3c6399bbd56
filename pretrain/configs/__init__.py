"""Settings of the methods, one file for each file of methods/.

They are apart from the methods because recipes hold them: recipes are listed, and their options are
shown, without torch.
"""
